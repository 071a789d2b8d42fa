"""Draws around a score, or around an instance that isn't ranked: who may be drawn, against a sorted list."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Q

from django_zrank import RankIndex, Recommendations
from tests.populations import fill, populate
from tests.rankings import by_sql
from tests.sharded import sharded
from tests.test_async_versions import Both
from tests.test_ranking import FACETED, INDEXES, Oracle, Row, write
from tests.testapp.models import Competitor, Player, Ticket
from tests.testapp.zrank import ByInteger, ByMoment, ByPrice, PlayerRank

pytestmark = pytest.mark.usefixtures("zrank")

RANKS = [index for index in (*INDEXES, *FACETED) if "dense" not in index.name]
IN_SHARDS = [pytest.param(index, (1, 3, 3, 1)[at % 4], id=index.name) for at, index in enumerate(RANKS)]
"""Each with one number of shards: every order, and every method, comes with both."""


def rows(count: int, seed: int = 1) -> dict[int, Row]:
    rng = random.Random(seed)
    totals = [*range(-4, 4), *(2**60 + n for n in range(4)), -(2**63), 2**63 - 1]
    return {
        pk: {
            "points": rng.randrange(-8, 8),
            "total": rng.choice(totals),
            "lost": rng.randrange(3),
            "joined": None,
            "region": rng.choice(["kantou", "kansai"]),
            "platform": rng.choice(["pc", "ps"]),
            "tags": set(),
        }
        for pk in range(1, count + 1)
    }


def assert_drawn(
    drawn: Recommendations[Any], oracle: Oracle, before: int, at: Any, n: int, band: int, out: set[int]
) -> None:
    """``before``: the number of members that rank before the position."""
    first = oracle.paths[0]

    def inside(pks: list[int]) -> set[int]:
        return {pk for pk in pks if abs(oracle.rows[pk][first] - at) <= band} - out

    better, worse = inside(oracle.pks[:before]), inside(oracle.pks[before:])
    chosen = [entry.pk for entry in drawn]
    assert len(chosen) == len({*chosen}) == min(n, len(better) + len(worse))
    assert {*chosen} <= better | worse
    half = (n + 1) // 2
    assert len({*chosen} & better) == min(len(better), max(half, n - len(worse)))
    assert list(drawn) == oracle.entries([pk for pk in oracle.pks if pk in chosen])


@pytest.mark.parametrize(("index", "shards"), IN_SHARDS)
def test_members_near_a_score(index: type[RankIndex], shards: int) -> None:
    index = sharded(index, shards)
    population = rows(60)
    populate(index, population)
    oracle = Oracle(index, population, lambda row: True)
    _compare(index.ranking, oracle, population)
    _compare(index.ranking.reversed(), oracle.reversed(), population)
    _compare(Both(index.ranking), oracle, population, draws=2)


def _before(oracle: Oracle, at: Any) -> int:
    """The number of members that rank before a score, by which a new member would come first among equals."""
    values = [oracle.values(pk)[0] for pk in oracle.pks]
    return sum(value > at if oracle.descending else value < at for value in values)


def _compare(ranking: Any, oracle: Oracle, population: dict[int, Row], draws: int = 15) -> None:
    rng, first = random.Random(7), oracle.paths[0]
    values = [row[first] for row in population.values()]
    for _ in range(draws):
        at = rng.choice(values)
        at += rng.choice([0, 0, 1]) if abs(at) < 2**62 else 0
        n, band = rng.choice([1, 4, 9]), rng.choice([0, 2, 5])
        out = {*rng.sample([*population], rng.choice([0, 0, 3, len(population) // 2]))}
        drawn = ranking.near(at, n, band=band, exclude=out)
        assert_drawn(drawn, oracle, _before(oracle, at), at, n, band, out)


@pytest.mark.part("sql")
@pytest.mark.django_db
@pytest.mark.parametrize("index", RANKS, ids=lambda index: index.name)
def test_members_near_a_score_by_sql(index: type[RankIndex], settings: Any) -> None:
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}  # of a busy machine
    population = rows(40)
    write(population)
    _compare(by_sql(index), Oracle(index, population, lambda row: True), population, draws=8)


@pytest.mark.django_db
@pytest.mark.parametrize("by", ["redis", pytest.param("sql", marks=pytest.mark.part("sql"))])
@pytest.mark.parametrize(("index", "shards"), IN_SHARDS)
def test_members_near_an_instance(index: type[RankIndex], by: str, shards: int, settings: Any) -> None:
    """As near a member that stands where the instance would."""
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}
    index, population = sharded(index, shards), rows(40)
    write(population)
    populate(index, population)
    ranking = by_sql(index) if by == "sql" else index.ranking
    whole, rng, first = (
        Oracle(index, population, lambda row: True),
        random.Random(2),
        index.order[0].strip("-"),
    )
    for pk in [None, 500, 7, 21]:
        row = {path: value for path, value in rng.choice([*population.values()]).items() if path != "tags"}
        instance = Competitor(pk=pk, **row)
        # An unsaved instance ranks ahead of all that are equal to it.
        unsaved = "\U0010ffff" if whole.descending else ""
        text, others = (
            unsaved if pk is None else str(pk),
            {one: row for one, row in population.items() if one != pk},
        )
        oracle = Oracle(index, others, lambda row: True)
        mine = Oracle(index, {**others, text: row}, lambda row: True)  # type: ignore[dict-item]
        for n in (1, 4, 9):
            drawn = ranking.near(instance, n, band=3, exclude=[11])
            before = mine.pks.index(text)  # type: ignore[arg-type]
            found = [entry.pk for entry in drawn]
            assert pk not in found
            chosen = [one for one in oracle.pks if one in found]
            assert found == sorted(chosen, key=whole.pks.index)
            near = [one for one in oracle.pks if abs(oracle.rows[one][first] - row[first]) <= 3 and one != 11]
            better = [one for one in near if one in oracle.pks[:before]]
            worse = [one for one in near if one not in better]
            assert len(found) == min(n, len(better) + len(worse))
            assert len({*found} & {*better}) == min(len(better), max((n + 1) // 2, n - len(worse)))


@pytest.mark.part("combined")
@pytest.mark.parametrize("shards", [1, 3])
def test_further_parameters(shards: int) -> None:
    index = sharded(FACETED[0], shards)
    population = {pk: row | {"points": pk} for pk, row in rows(60).items()}
    populate(index, population)
    ranking = index.ranking
    assert {entry.pk for entry in ranking.near(30, 50, ranks=(2, 3))} == {29, 30, 31, 32, 33}
    drawn = ranking.near(30.0, 8, band=1, widen=[2, 5])
    assert (drawn.band, drawn.candidates) == ((5, 5), 11)
    assert ranking.near(30, 5, band=20, seed=3) == ranking.near(30, 5, band=20, seed=3)
    kansai = {pk for pk, row in population.items() if row["region"] == "kansai" and abs(pk - 30) <= 5}
    assert {entry.pk for entry in ranking.filter(region="kansai").near(30, 50, band=5)} == kansai
    tested = ranking.filter(region="kansai").exclude(platform="pc").near(30, 50, band=9)
    assert {entry.pk for entry in tested} == {
        pk
        for pk, row in population.items()
        if (row["region"], row["platform"]) == ("kansai", "ps") and abs(pk - 30) <= 9
    }
    assert list(ranking.near(1000, 5, band=3)) == []


@pytest.mark.django_db
@pytest.mark.parametrize("shards", [1, 2])
def test_the_hooks_and_conditions_of_the_database_hold(shards: int) -> None:
    index = sharded(PlayerRank, shards)
    players = [Player.objects.create(level=level) for level in range(10)]
    players[4].friends.add(players[3])
    populate(index, {player.pk: {"level": player.level} for player in players})
    found = index.ranking.near(players[4], 20, band=2)
    assert {entry.pk - players[0].pk for entry in found} == {2, 5, 6}
    guest = index.ranking.near(Player(level=4), 20, band=2, where=Q(level__gt=3))
    assert {entry.pk - players[0].pk for entry in guest} == {4, 5, 6}


def test_every_set_is_equally_likely() -> None:
    index = INDEXES[0]
    populate(index, {pk: row | {"points": 5 + pk % 2} for pk, row in rows(8).items()})
    drawn: Counter[Any] = Counter()
    for _ in range(3000):
        drawn.update([frozenset(entry.pk for entry in index.ranking.near(6, 2, band=3))])
    # Those with a score of 6 rank after it, and nobody ranks before it.
    assert len(drawn) == 28
    expected = 3000 / 28
    assert sum((count - expected) ** 2 / expected for count in drawn.values()) < 64  # p < 0.0001 for 27


@pytest.mark.parametrize(
    ("at", "arguments", "message"),
    [
        ("many", {}, "at: level"),
        (None, {}, "at: level"),
        (float("nan"), {}, "at: level"),
        (2**70, {}, "at: level"),
        (5, {"n": 0}, "n: "),
        (5, {"band": -1}, "band: "),
        (Player(level=None), {}, "at: "),
        (Competitor(points=4), {}, "at: "),
    ],
)
def test_invalid_parameters_are_named(at: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlayerRank.ranking.near(at, **arguments)


@pytest.mark.parametrize("row", [{"price": "abc"}, {"integer": float("inf")}, {"price": Decimal("NaN")}])
def test_an_instance_without_a_number(row: dict[str, Any]) -> None:
    index = ByPrice if "price" in row else ByInteger
    with pytest.raises(ValueError, match="at: "):
        index.ranking.near(Ticket(**row))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("by", "shards"), [("redis", 1), ("redis", 3), pytest.param("sql", 1, marks=pytest.mark.part("sql"))]
)
@pytest.mark.parametrize("index", [INDEXES[0], FACETED[0]], ids=lambda index: index.name)
def test_an_instance_is_not_its_own_candidate(
    index: type[RankIndex], by: str, shards: int, settings: Any
) -> None:
    """Wherever it is ranked: its score here may have changed since."""
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}
    population = {pk: row | {"points": pk} for pk, row in rows(20).items()}
    write(population)
    index = sharded(index, shards)
    populate(index, population)
    ranking = by_sql(index) if by == "sql" else index.ranking
    instance = Competitor.objects.get(pk=7)
    for score in (7, 9, 10, 11, 4, 3, 2):
        instance.points = score
        others = {*range(score - 3, score + 4)} & {*range(1, 21)} - {7}
        for asked in (ranking, ranking.reversed()):
            drawn = asked.near(instance, 20, band=3)
            assert {entry.pk for entry in drawn} == others
            assert drawn.candidates == len(others)
            widened = asked.near(instance, len(others), band=3, widen=[10])
            assert (widened.band, len(widened)) == ((3, 3), len(others))
    if index.facets:
        instance.points = 9
        for one in ("kantou", "kansai"):
            drawn = ranking.filter(region=one).near(instance, 20, band=3)
            others = {pk for pk, row in population.items() if row["region"] == one and 6 <= pk <= 12} - {7}
            assert ({entry.pk for entry in drawn}, drawn.candidates) == (others, len(others))


@pytest.mark.django_db
@pytest.mark.parametrize("shards", [1, 3])
def test_hooks_are_not_called_for_a_row_that_is_not_saved(shards: int) -> None:
    """Also if a default has given it a primary key."""

    class TicketRank(RankIndex):
        name = "near_tickets"
        model = Ticket
        order = ("-integer",)
        band = 3

        def get_excluded(self, ticket: Ticket, /) -> list[Ticket]:
            asked.append(ticket.pk)
            return []

    asked: list[Any] = []
    index = sharded(TicketRank, shards)
    saved = [Ticket.objects.create(integer=at) for at in range(5)]
    populate(index, {ticket.pk: {"integer": ticket.integer} for ticket in saved})
    for ranking in (index.ranking, Both(index.ranking)):
        drawn = ranking.near(Ticket(integer=2), 5)
        assert ([entry.score for entry in drawn], drawn.candidates, asked) == ([4, 3, 2, 1, 0], 5, [])
    drawn = index.ranking.near(saved[2], 5)
    assert ([entry.score for entry in drawn], drawn.candidates) == ([4, 3, 1, 0], 4)
    assert asked == [saved[2].pk]


def test_a_naive_datetime_is_in_the_default_time_zone(zrank: Any, settings: Any) -> None:
    """As Django takes it in filters and in rows. It was once taken for UTC: nine hours late in Tokyo."""
    settings.TIME_ZONE = "Asia/Tokyo"
    row, naive = Ticket(moment=datetime(2026, 3, 1, 3, tzinfo=UTC)), datetime(2026, 3, 1, 12)
    fill(ByMoment, {row.pk: row.moment})
    ranking, none = ByMoment.ranking, timedelta(0)
    assert ranking.count_between(naive, naive) == 1
    assert ranking.near(naive, band=none)[0].pk == row.pk
    assert ranking.near(Ticket(moment=naive), band=none)[0].pk == row.pk


def test_an_aware_datetime_where_the_database_holds_local_times(settings: Any) -> None:
    settings.USE_TZ = False
    aware = datetime(2026, 3, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"moment: .*without a time zone"):
        ByMoment.ranking.near(aware)
    with pytest.raises(ValueError, match=r"at: .*without a time zone"):
        ByMoment.ranking.near(Ticket(moment=aware))
