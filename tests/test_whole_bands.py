"""Draws from bands of which most is excluded: they are read as a whole, in several round trips."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from django_zrank.queries.request import Request
from django_zrank.redis import scripts
from django_zrank.redis.executor import Executor
from tests.populations import fill
from tests.test_uniformity import LIMIT, Side, Uniform, deviation

SIZE = 3203
ME = 1602
ABOVE = range(1801, 3002, 200)
BELOW = range(201, 1402, 200)
"""Those who may come: seven better ones, and seven worse ones. Each side is too large to be read at once."""

EXCLUDED = [pk for pk in range(1, SIZE + 1) if pk not in {*ABOVE, *BELOW, ME}]
HOUR = timedelta(hours=1)


@pytest.fixture
def crowd(zrank: Redis) -> Any:
    fill(Uniform, {pk: pk for pk in range(1, SIZE + 1)})
    return Uniform.ranking


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What is sent to Redis from now on."""
    sent: list[Request] = []
    send = Executor.send
    monkeypatch.setattr(Executor, "send", lambda self, request: sent.append(request) or send(self, request))
    return sent


def drawn(ranking: Any, n: int, **how: Any) -> list[int]:
    how = {"ranks": SIZE, "exclude": EXCLUDED, **how}
    return [entry.pk for entry in ranking.recommend(ME, n, **how)]


def test_half_come_from_each_side(crowd: Any) -> None:
    for reverse in (False, True):
        found = drawn(crowd.reversed() if reverse else crowd, 5)
        assert len(set(found)) == 5
        assert len(set(found) & set(BELOW if reverse else ABOVE)) == 3, "the odd one is ranked before"
        assert set(found) <= {*ABOVE, *BELOW}
    assert drawn(crowd, 50) == [*reversed(ABOVE), *reversed(BELOW)]
    assert drawn(crowd, 5, seed=1) == drawn(crowd, 5, seed=1)


def test_members_that_cross_the_end_of_a_band_move_no_others_into_it(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The band is read in several round trips."""
    send = Executor.send

    def moving(self: Executor, request: Request) -> Any:
        replies = send(self, request)
        if request.calls[0].command is scripts.DEAL:
            crowd.store.client.zadd(crowd.store.live.root, {"1": SIZE + 1})
        return replies

    monkeypatch.setattr(Executor, "send", moving)
    beyond = ME + 1501
    found = drawn(crowd, 20, ranks=None, band=1500, exclude=set(EXCLUDED) - {beyond})
    assert set(found) == {*ABOVE, *BELOW}


def test_they_are_read_in_few_round_trips(crowd: Any, requests: list[Request]) -> None:
    """The last one who may come is found, without a look-up for each."""
    assert drawn(crowd, 50) == [*reversed(ABOVE), *reversed(BELOW)]
    assert len(requests) <= 5


def test_a_large_band_of_which_many_are_excluded_is_not_read(zrank: Redis, requests: list[Request]) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 20_001)})
    requests.clear()
    excluded = [pk for pk in range(1, 20_001) if pk % 4]
    found = [
        entry.pk for entry in Uniform.ranking.recommend(10_000, 10, band=10**5, exclude=excluded, seed=1)
    ]
    assert len(set(found)) == 10
    assert not {*found} & {*excluded}
    assert len(requests) <= 4


def test_one_side_makes_up_for_the_other(crowd: Any) -> None:
    found = drawn(crowd, 10, exclude=[*EXCLUDED, *ABOVE[1:]])
    assert found[0] == ABOVE[0]
    assert found[1:] == [*reversed(BELOW)]


def test_every_set_is_equally_likely(crowd: Any) -> None:
    draws = [drawn(crowd, 3, seed=seed) for seed in range(60)]
    assert deviation(draws, Side(tuple(ABOVE), 2), Side(tuple(BELOW), 1)) < LIMIT


def test_the_next_band_is_tried(crowd: Any) -> None:
    for widest, count in ((1400, 13), (SIZE, 14)):
        found = Uniform.ranking.recommend(ME, 14, ranks=1100, widen=[1200, widest], exclude=EXCLUDED)
        assert len(found) == count
        assert found.band == (widest, widest)


def test_nobody_comes_twice_before_everybody_came(crowd: Any) -> None:
    Uniform.ranking.forget(ME)
    first, second = (drawn(crowd, 7, remember=HOUR) for _ in range(2))
    assert {*first, *second} == {*ABOVE, *BELOW}
    third = drawn(crowd, 10, remember=HOUR)
    assert set(first) < set(third), "those shown first come again first"
    assert len(set(third)) == 10


def test_ranks_by_competition(crowd: Any) -> None:
    entries = crowd.by("competition").recommend(ME, 3, ranks=SIZE, exclude=EXCLUDED)
    assert [entry.rank for entry in entries] == [SIZE + 1 - entry.pk for entry in entries]


def test_scores_of_those_who_pass_filters(crowd: Any) -> None:
    Uniform.group("all").add(*range(1, SIZE + 1))
    ranking = Uniform.ranking.filter(group="all")
    for how in ({"ranks": SIZE}, {"ranks": None}):
        assert drawn(ranking, 50, **how) == [*reversed(ABOVE), *reversed(BELOW)]
