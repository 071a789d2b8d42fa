"""``recommend(remember=…)``: those shown to a member are not shown to it again until nobody else is left."""

from __future__ import annotations

from datetime import timedelta
from time import sleep
from typing import Any

import pytest
from django.db.models import Q
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank.remember.memory import remembered_key
from tests.populations import fill, populate
from tests.test_asking import Filtered, FilteredTied, PlayerIndex, row, spread

pytestmark = pytest.mark.usefixtures("zrank")


def test_those_shown_are_not_shown_again_until_nobody_else_is_left(zrank: Redis) -> None:
    fill(PlayerIndex, dict.fromkeys(range(1, 12), 5))
    hour = timedelta(hours=1)
    shown = [{e.pk for e in PlayerIndex.ranking.recommend(6, 3, remember=hour)} for _ in range(3)]
    assert len(set.union(*shown)) == 9
    # One is new; the other two are those shown longest ago.
    last = {entry.pk for entry in PlayerIndex.ranking.recommend(6, 3, remember=hour)}
    assert len(last - set.union(*shown)) == 1
    assert len(last & shown[0]) == 2
    # Nobody else's memory is touched, and without the word nothing is remembered.
    assert len(PlayerIndex.ranking.recommend(7, 10, remember=hour)) == 10
    assert len(PlayerIndex.ranking.recommend(6, 10)) == 10
    PlayerIndex.ranking.forget(6)
    assert not zrank.exists(remembered_key(PlayerIndex.ranking.store.keys, "6"))
    assert len({entry.pk for entry in PlayerIndex.ranking.recommend(6, 10, remember=hour)}) == 10


def test_the_oldest_shown_stay_inside_the_band_and_the_exclusions() -> None:
    fill(PlayerIndex, {1: 5, 2: 5, 3: 6, 4: 20})
    hour = timedelta(hours=1)
    assert {e.pk for e in PlayerIndex.ranking.recommend(1, 3, band=100, remember=hour)} == {2, 3, 4}
    drawn = PlayerIndex.ranking.recommend(1, 3, band=2, exclude=[3], remember=hour)
    assert [entry.pk for entry in drawn] == [2]


def test_what_was_seen_is_forgotten_in_time(zrank: Redis) -> None:
    fill(PlayerIndex, dict.fromkeys(range(1, 6), 5))
    ranking, key = PlayerIndex.ranking, remembered_key(PlayerIndex.ranking.store.keys, "1")
    short = {entry.pk for entry in ranking.recommend(1, 2, remember=timedelta(milliseconds=1))}
    sleep(0.05)
    assert not zrank.exists(key)
    long = {entry.pk for entry in ranking.recommend(1, 2, exclude=short, remember=timedelta(hours=1))}
    ranking.recommend(1, 2, exclude=long, remember=timedelta(milliseconds=1))
    assert 3_500_000 < zrank.pttl(key) <= 3_600_000  # of the one that is remembered longest
    sleep(0.05)
    # Each is forgotten by itself: those of the short memory are new, and no wider band is tried.
    drawn = ranking.recommend(1, 2, widen=[20], remember=timedelta(hours=1))
    assert {entry.pk for entry in drawn} == short
    assert drawn.band == (10, 10)


def test_a_memory_is_bounded(zrank: Redis) -> None:
    fill(PlayerIndex, dict.fromkeys(range(1, 6), 5))
    ranking, key = PlayerIndex.ranking, remembered_key(PlayerIndex.ranking.store.keys, "1")
    ranking.recommend(1, 1, remember=timedelta(minutes=1))
    until = zrank.zrange(key, 0, 0, withscores=True)[0][1]
    zrank.zadd(key, {f"{number}": until for number in range(100, 1_100)})
    ranking.recommend(1, 2, remember=timedelta(hours=1))
    assert zrank.zcard(key) == 1_000


@pytest.mark.part("combined")
def test_the_oldest_shown_pass_the_filters() -> None:
    populate(
        Filtered, {pk: row(pk, tags={pk % 2}, region="kansai" if pk % 3 else None) for pk in range(1, 13)}
    )
    hour = timedelta(hours=1)
    assert len(Filtered.ranking.recommend(1, 11, band=20, remember=hour)) == 11
    ranking = Filtered.ranking.filter(tags=0).exclude(region="kansai")
    assert [entry.pk for entry in ranking.recommend(1, 11, band=20, remember=hour)] == [12, 6]


@given(size=st.integers(2, 30), n=st.integers(1, 6), rounds=st.integers(1, 12), tied=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nobody_comes_twice_before_everybody_came(size: int, n: int, rounds: int, tied: bool) -> None:
    index = FilteredTied if tied else Filtered
    populate(index, {pk: row(pk % 3, lost=pk % 2) for pk in range(1, size + 1)})
    index.ranking.forget(1)
    last: dict[int, int] = {}
    for turn in range(rounds):
        drawn = [entry.pk for entry in index.ranking.recommend(1, n, band=9, remember=timedelta(hours=1))]
        assert len(set(drawn)) == len(drawn) == min(n, size - 1)
        fresh = [pk for pk in drawn if pk not in last]
        assert len(fresh) == min(len(drawn), size - 1 - len(last))
        old = [last[pk] for pk in drawn if pk in last]
        waiting = sorted(turn_ for pk, turn_ in last.items())
        assert sorted(old) == waiting[: len(old)]
        last.update(dict.fromkeys(drawn, turn))


@pytest.mark.parametrize("remember", [timedelta(0), -timedelta(hours=1), 60])
def test_a_memory_lasts(remember: Any) -> None:
    fill(PlayerIndex, {1: 1})
    with pytest.raises(ValueError, match="remember"):
        PlayerIndex.ranking.recommend(1, remember=remember)


@pytest.mark.part("combined")
def test_what_was_shown_is_remembered_where_the_combined_filter_is_drawn_from() -> None:
    populate(Filtered, spread(400, 40) | {pk: row(pk, region="kansai") for pk in range(401, 800)})
    ranking = Filtered.ranking.filter(region="kansai", tags=1)
    ranking.forget(5)
    drawn = [ranking.recommend(5, 5, band=1000, remember=timedelta(hours=1)) for _ in range(2)]
    assert len({entry.pk for some in drawn for entry in some}) == 10


def test_where_and_remember_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="remember"):
        PlayerIndex.ranking.recommend(1, where=Q(), remember=timedelta(1))
