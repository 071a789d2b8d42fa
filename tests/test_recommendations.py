"""recommend() against a brute-force oracle, and the contract around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import NotRanked, RankIndex
from django_zrank.ranking import Ranking
from tests.populations import fill
from tests.testapp.models import Player
from tests.testapp.zrank import NicknameRank, PlayerRank


class Descending(RankIndex):
    name = "oracle-descending"
    model = Player
    order = ("-level",)


class Ascending(RankIndex):
    name = "oracle-ascending"
    model = Player
    order = ("level",)


class Oracle:
    """The possible results, computed from all members."""

    def __init__(
        self, index: type[RankIndex], scores: dict[int, int], me: int, excluded: Iterable[int]
    ) -> None:
        # A sorted set breaks ties by the bytes of the member; a descending order reads it from its end.
        descending = index.order[0].startswith("-")
        self.ranked = sorted(scores, key=lambda pk: (scores[pk], str(pk).encode()), reverse=descending)
        self.scores, self.me, self.excluded = scores, me, set(excluded)

    def sides(self, below: int, above: int) -> tuple[list[int], list[int]]:
        """The candidates ranked before me and after me."""
        mine, place = self.scores[self.me], self.ranked.index(self.me)
        inside = [mine - below <= self.scores[pk] <= mine + above for pk in self.ranked]
        sides = self.ranked[:place], self.ranked[place + 1 :]
        offset = 0, place + 1
        return tuple(  # type: ignore[return-value]
            [pk for at, pk in enumerate(side, first) if inside[at] and pk not in self.excluded]
            for side, first in zip(sides, offset, strict=True)
        )

    def split(self, n: int, below: int, above: int) -> tuple[int, int]:
        """The numbers of members from before and from after the member."""
        before, after = map(len, self.sides(below, above))
        wanted = -(-n // 2)
        taken = min(before, max(wanted, n - after))
        return taken, min(after, n - taken)


members = st.integers(1, 30)
crowds = st.dictionaries(members, st.integers(-10, 10), min_size=1)
# Left alone, three of four questions would be about nobody, and few about somebody in the middle.
crowds |= st.dictionaries(members, st.integers(-10, 10), min_size=12).map(lambda scores: {15: 0} | scores)
distances = st.one_of(st.integers(0, 12), st.just(1000))
bands = st.tuples(distances, distances)


QUESTION = ("index", "scores", "me", "excluded", "n", "steps", "seed")
EDGES = [
    (Descending, {1: 0}, 1, [], 10, [(5, 5)], 0),  # alone
    (Ascending, dict.fromkeys(range(1, 31), 0), 15, [], 10, [(0, 0)], 0),  # all tied
    (Descending, dict.fromkeys(range(1, 31), 7), 1, list(range(1, 31)), 10, [(9, 9)], 0),  # all excluded
    (Descending, {pk: pk for pk in range(1, 31)}, 30, [], 12, [(1000, 0)], 0),  # nobody before me
]


mostly_excluded = given(
    size=st.integers(200, 400),
    place=st.floats(0, 1),
    kept=st.integers(0, 60),
    n=st.integers(1, 20),
    seed=st.integers(),
)
"""Populations of which most are excluded: who asks stands at ``place``, and ``kept`` of them may come back."""


def questions(max_examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Puts populations, and what is asked of them, to a test: see ``assert_agrees()``."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        for edge in EDGES:
            test = example(**dict(zip(QUESTION, edge, strict=True)))(test)
        test = given(
            index=st.sampled_from([Descending, Ascending]),
            scores=crowds,
            me=st.just(15) | members,
            excluded=st.lists(members),
            n=st.integers(1, 12),
            steps=st.lists(bands, min_size=1, max_size=3),
            seed=st.integers(),
        )(test)
        health = [HealthCheck.function_scoped_fixture]
        return settings(max_examples=max_examples, deadline=None, suppress_health_check=health)(test)

    return decorate


def assert_agrees(
    ranking: Ranking,
    scores: dict[int, int],
    me: int,
    excluded: list[int],
    n: int,
    steps: list[tuple[int, int]],
    seed: int,
) -> None:
    """Assert that recommendations among ``scores`` are among those that the oracle allows."""
    oracle = Oracle(type(ranking.index), scores, me, excluded)
    if me not in scores:
        with pytest.raises(NotRanked):
            ranking.recommend(me, n, band=steps[0])
        return
    drawn = ranking.recommend(me, n, band=steps[0], widen=steps[1:], exclude=excluded, seed=seed)

    enough = (step for step in steps if sum(map(len, oracle.sides(*step))) >= n)
    band = next(enough, steps[-1])
    before, after = oracle.sides(*band)
    pks = [entry.pk for entry in drawn]
    assert drawn.band == band
    assert len(set(pks)) == len(pks)
    assert (len(set(pks) & set(before)), len(set(pks) & set(after))) == oracle.split(n, *band)
    assert set(pks) <= {*before, *after}
    assert [(e.score, e.rank) for e in drawn] == [(scores[pk], oracle.ranked.index(pk) + 1) for pk in pks]
    assert [e.rank for e in drawn] == sorted(e.rank for e in drawn)
    mine = scores[me]
    assert drawn.candidates == sum(mine - band[0] <= s <= mine + band[1] for s in scores.values()) - 1
    again = ranking.recommend(me, n, band=steps[0], widen=steps[1:], exclude=excluded, seed=seed)
    assert list(again) == list(drawn)
    assert ranking.rank(me) == oracle.ranked.index(me) + 1
    assert ranking.score(me) == mine
    assert ranking.count() == len(scores)


@pytest.mark.usefixtures("zrank")
@questions(max_examples=150)
def test_agrees_with_the_oracle(index: type[RankIndex], scores: dict[int, int], **asked: Any) -> None:
    fill(index, scores)
    assert_agrees(index.ranking, scores, **asked)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@mostly_excluded
def test_agrees_where_sides_are_large_and_mostly_excluded(zrank: Redis, **asked: Any) -> None:
    """Sides that are drawn from one by one, and given up for a read of the whole."""
    fill(Descending, {pk: pk // 3 for pk in range(1, asked["size"] + 1)})
    assert_agrees_on_few(Descending.ranking, **asked)


def assert_agrees_on_few(ranking: Ranking, size: int, place: float, kept: int, n: int, seed: int) -> None:
    """Assert that recommendations among as many members are right where few may be drawn."""
    scores = {pk: pk // 3 for pk in range(1, size + 1)}
    me = 1 + int(place * (size - 1))
    excluded = [pk for pk in scores if pk % size >= kept]
    drawn = ranking.recommend(me, n, band=1000, exclude=excluded, seed=seed)
    oracle = Oracle(Descending, scores, me, excluded)
    before, after = oracle.sides(1000, 1000)
    pks = {entry.pk for entry in drawn}
    assert (len(pks & set(before)), len(pks & set(after))) == oracle.split(n, 1000, 1000)
    assert len(drawn) == min(n, len(before) + len(after))
    assert [e.rank for e in drawn] == [oracle.ranked.index(e.pk) + 1 for e in drawn]


@pytest.mark.usefixtures("zrank")
def test_different_calls_draw_differently() -> None:
    fill(Descending, {pk: pk for pk in range(1, 1001)})
    draws = {tuple(Descending.ranking.recommend(500, 10, band=400)) for _ in range(20)}
    assert len(draws) == 20


@pytest.mark.usefixtures("zrank")
def test_one_round_trip() -> None:
    fill(Descending, {pk: pk for pk in range(1, 3001)})
    ranking, exclude = Descending.ranking, range(1, 1000)
    ranking.recommend(1500, band=100, exclude=exclude)  # the server knows the script from here on
    with mock.patch.object(
        Redis, "execute_command", autospec=True, side_effect=Redis.execute_command
    ) as calls:
        assert len(ranking.recommend(1500, band=1000, exclude=exclude, widen=(1400, 2000), seed=1)) == 10
    assert calls.call_count == 1


@pytest.mark.usefixtures("zrank")
def test_a_flushed_script_cache_is_refilled(zrank: Redis) -> None:
    fill(Descending, {1: 1, 2: 2})
    zrank.script_flush()
    assert [entry.pk for entry in Descending.ranking.recommend(1, band=5)] == [2]


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n: "),
        ({"n": -1}, "n: "),
        ({"n": 501}, "n: expected a whole number from 1 to 500"),
        ({"n": 2.0}, "n: "),
        ({"n": True}, "n: "),
        ({"band": -1}, "band: "),
        ({"band": (5, -1)}, "band: "),
        ({"band": float("nan")}, "band: "),
        ({"band": float("inf")}, "band: "),
        ({"band": "ten"}, "band: "),
        ({"band": (1, 2, 3)}, "band: "),
        ({"band": None}, "band: "),
        ({"widen": 25}, "widen: "),
        ({"widen": (25, float("nan"))}, "widen: "),
        ({"exclude": "12"}, "exclude: "),
        ({"exclude": ["one"]}, "exclude: "),
        ({"exclude": [None]}, "exclude: "),
        ({"member": "one"}, "member: "),
        ({"member": None}, "member: "),
        ({"member": Player()}, "member: "),
    ],
)
def test_nonsense_names_its_parameter(arguments: dict[str, Any], message: str) -> None:
    fill(Descending, {1: 1})
    with pytest.raises(ValueError, match=f"^{message}"):
        Descending.ranking.recommend(**{"member": 1, "band": 10} | arguments)


@pytest.mark.usefixtures("zrank")
def test_the_ceiling_of_n_is_a_setting(settings: Any) -> None:
    fill(Descending, {pk: pk for pk in range(700)})
    settings.ZRANK = {"MAX_N": 600}
    drawn = Descending.ranking.recommend(350, 600, band=1000)
    assert len({entry.pk for entry in drawn}) == 600


@pytest.mark.usefixtures("zrank")
def test_an_index_without_members_is_built() -> None:
    fill(Descending, {})
    assert Descending.ranking.count() == 0
    with pytest.raises(NotRanked):
        Descending.ranking.recommend(1, band=1)


@pytest.mark.django_db(transaction=True)
class TestWithRows:
    @pytest.fixture(autouse=True)
    def players(self, zrank: Redis) -> dict[int, Player]:
        players = {level: Player.objects.create(level=level, name=f"at {level}") for level in range(20)}
        self.me, self.friend = players[10], players[11]
        self.me.friends.add(self.friend)
        return players

    def test_never_offers_a_friend_or_me(self) -> None:
        drawn = PlayerRank.ranking.recommend(self.me, 18)
        assert {entry.score for entry in drawn} == set(range(20)) - {10, 11}

    def test_takes_a_primary_key_as_well(self) -> None:
        assert list(PlayerRank.ranking.recommend(self.me.pk, seed=1)) == list(
            PlayerRank.ranking.recommend(self.me, seed=1)
        )

    def test_excludes_instances_and_querysets(self) -> None:
        drawn = PlayerRank.ranking.recommend(self.me, 20, exclude=Player.objects.filter(level__gt=2))
        assert {entry.score for entry in drawn} == {0, 1, 2}

    def test_objects_keep_the_order_in_one_query(self) -> None:
        drawn = PlayerRank.ranking.recommend(self.me)
        with CaptureQueriesContext(connection) as queries:
            rows = drawn.objects()
        assert len(queries) == 1
        assert [row.pk for row in rows] == [entry.pk for entry in drawn]
        assert [row.level for row in rows] == [entry.score for entry in drawn]

    def test_objects_leave_out_rows_that_are_gone(self) -> None:
        drawn = PlayerRank.ranking.recommend(self.me, 18)
        Player.objects.filter(level=5).delete()
        assert [row.level for row in drawn.objects()] == [e.score for e in drawn if e.score != 5]

    def test_objects_from_a_queryset_of_the_callers(self) -> None:
        drawn = PlayerRank.ranking.recommend(self.me, 3)
        names = drawn.objects(Player.objects.only("name"))
        assert [row.name for row in names] == [f"at {entry.score}" for entry in drawn]

    def test_a_row_that_does_not_exist_is_not_ranked(self) -> None:
        with pytest.raises(NotRanked):
            PlayerRank.ranking.recommend(10**6)

    def test_an_instance_of_another_model(self) -> None:
        with pytest.raises(ValueError, match="member: "):
            NicknameRank.ranking.recommend(self.me)


def test_excluded_integers_beyond_what_a_double_holds(zrank: Redis) -> None:
    """Neighbours beyond 2**53 are one number to Lua, and yet two members."""
    me, out, near = 2**53, 2**53 + 1, 2**53 + 2
    fill(Descending, {me: 5, out: 5, near: 5, 2**60: 5, 2**60 + 1: 5})
    drawn = Descending.ranking.recommend(me, 4, band=1, exclude=[out, 2**60])
    assert {entry.pk for entry in drawn} == {near, 2**60 + 1}


def test_whoever_compares_in_its_own_way_may_hold_whom_to_exclude(zrank: Redis) -> None:
    class Vector(list[int]):
        """As NumPy's arrays, which are compared element by element."""

        def __ne__(self, other: object) -> bool:
            raise ValueError("The truth value of an array with more than one element is ambiguous.")

        __eq__ = __ne__

    fill(Descending, dict.fromkeys(range(5), 1))
    drawn = Descending.ranking.recommend(0, 4, band=1, exclude=Vector([1, 2]))
    assert {entry.pk for entry in drawn} == {3, 4}
