"""Every verb by SQL against the sorted lists that Redis is tested against, then answer for answer what Redis says."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, Q
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import Entry, IndexUnavailable, RankIndex
from django_zrank.ranking import Ranking
from tests.populations import populate
from tests.rankings import ByRedis, by_sql
from tests.test_database import answer, full, outline
from tests.test_ranking import (
    FACETED,
    FILTERS,
    INDEXES,
    CompetitorRank,
    Oracle,
    Row,
    assert_same,
    assert_same_under_filters,
    populations,
    write,
)
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Guild, Team

EXAMPLES = int(os.environ.get("ZRANK_TEST_EXAMPLES", "8"))
"""Of everything; a population is asked some hundred questions."""

examples = settings(
    max_examples=max(2, EXAMPLES // 4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture(autouse=True)
def patient(settings: Any) -> None:
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}  # of a busy machine


# Against sorted lists


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.name)
@examples
@given(population=populations)
def test_every_verb(index: type[RankIndex], population: dict[int, Row]) -> None:
    write(population)
    assert_same(by_sql(index), Oracle(index, population, lambda row: True), population)


@pytest.mark.parametrize("index", [INDEXES[0], INDEXES[10]], ids=lambda index: index.name)
@settings(examples, max_examples=2)
@given(population=populations)
def test_other_methods_and_the_other_direction(index: type[RankIndex], population: dict[int, Row]) -> None:
    write(population)
    oracle = Oracle(index, population, lambda row: True)
    assert_same(by_sql(index).reversed(), oracle.reversed(), population)
    assert_same(by_sql(index).by("competition"), oracle.by("competition"), population)


@pytest.mark.parametrize("case", FILTERS.values(), ids=list(FILTERS))
@settings(examples, max_examples=max(2, EXAMPLES // 4))
@given(population=populations, index=st.sampled_from(FACETED))
def test_filters(case: Any, population: dict[int, Row], index: type[RankIndex]) -> None:
    narrow, passes = case
    write(population)
    assert_same_under_filters(narrow(by_sql(index)), Oracle(index, population, passes), population)


# Answer for answer what Redis says

INT64 = st.sampled_from(
    [-(2**63), -(2**53) - 1, -(2**53), -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
)
MOMENTS = st.sampled_from(
    [
        datetime(1600, 1, 1, tzinfo=UTC),
        *(datetime(2024, 2, 29, 12, 0, 0, at, tzinfo=UTC) for at in range(3)),
        None,
    ]
)
TEAMS = st.fixed_dictionaries(
    {
        "points": INT64,
        "goals": st.integers(-1, 1),
        "wins": st.sampled_from([0, 1, 2**53 + 1, 2**63 - 1, None]),
        "rating": st.sampled_from([0.0, -0.0, 0.5, -1e300, None]),
        "fee": st.sampled_from([Decimal("0.1"), Decimal("-0.001"), Decimal("123456789012.345"), None]),
        "founded": st.sampled_from([datetime(2024, 3, day).date() for day in (1, 2)] + [None]),
        "achieved_at": MOMENTS,
        "lead": st.sampled_from([timedelta(0), timedelta(microseconds=-1), timedelta(days=9), None]),
        "is_pro": st.booleans(),
    }
)


class TeamRank(RankIndex):
    model = Team
    facets = ("is_pro", "founded")


def teams(name: str, *order: Any, method: str = "ordinal") -> type[RankIndex]:
    return type("Teams", (TeamRank,), {"name": f"teams-{name}", "order": order, "ranking_method": method})


MIRRORED: dict[str, tuple[type[RankIndex], list[Any]]] = {
    "wide, nulls first": (
        teams("a", "-points", F("achieved_at").asc(nulls_first=True), method=KEEPING),
        [0, 1, 2**53, 2**64],
    ),
    "wide alone": (teams("b", "points"), [0, 1, 2**53, 2**64]),
    "floats": (teams("c", "rating", "-wins", "goals", method="competition"), [0, 0.5, 1e308]),
    "decimals": (teams("d", "-fee", F("rating").asc(), "-lead"), [0, Decimal("0.101"), 10**12]),
    "moments": (
        teams("e", "-achieved_at", F("fee").desc(nulls_first=True), "pk", method="competition"),
        [timedelta(0), timedelta(microseconds=1), timedelta(days=200_000)],
    ),
    "durations": (teams("f", "lead", "-founded", method=KEEPING), [timedelta(0), timedelta(days=9)]),
    "days": (teams("g", "founded", "is_pro", "-points"), [0, 1, timedelta(days=1)]),
    "flags": (teams("h", "-is_pro", F("founded").desc(nulls_last=True), method=KEEPING), [0, 1]),
}


def answers(ranking: Ranking, pks: list[int], distances: list[Any], wish: dict[str, Any]) -> list[Any]:
    """Whatever can be asked with these."""
    bands = [{"band": (distance, distances[0]), "widen": [distance]} for distance in distances]
    bands += [{"ranks": ranks} for ranks in (1, (0, 3), 10**9)]
    everybody = list(ranking.top(100))
    drawn = [drew(ranking, everybody, pk, **band, **wish) for pk in pks[:5] for band in bands]
    scores = [entry.score for entry in everybody]
    return [
        ranking.count(),
        everybody,
        ranking.members(pks),
        ranking.ranks(pks),
        [answer(lambda ranking, pk=pk: ranking.around(pk, 4), ranking) for pk in pks[:5]],  # type: ignore[misc]
        [ranking.rank_of_score(score) for score in scores],
        [ranking.between(low, high, n=3) for low in scores[::3] for high in scores[::2]],
        ranking.counts("is_pro"),
        ranking.counts("founded"),
        drawn,
    ]


def drew(ranking: Ranking, everybody: list[Entry], pk: int, **wish: Any) -> Any:
    """A draw: all of it where everybody is wanted, else what it says but for chance."""
    if wish["n"] == 100:
        return answer(lambda ranking: full(ranking.recommend(pk, **wish)), ranking)
    return answer(lambda ranking: outline(ranking, everybody, pk, **wish), ranking)


@pytest.mark.parametrize(("index", "distances"), MIRRORED.values(), ids=list(MIRRORED))
@settings(examples, max_examples=EXAMPLES)
@given(population=st.lists(TEAMS, min_size=1, max_size=20), asked=st.data())
def test_says_what_redis_says(
    zrank: Redis, index: type[RankIndex], distances: list[Any], population: list[Row], asked: st.DataObject
) -> None:
    rows = {at**2: row for at, row in enumerate(population, 1)}
    Team.objects.all()._raw_delete("default")
    Team.objects.bulk_create(Team(pk=pk, **row) for pk, row in rows.items())
    first = index.instance().ordering.first.path
    populate(index, {pk: row | {"pk": pk} for pk, row in rows.items() if row[first] is not None})
    pks = asked.draw(st.permutations(list(rows)), "pks")
    wish = {
        "n": asked.draw(st.sampled_from([1, 2, 3, 6, 100]), "n"),
        "exclude": asked.draw(st.lists(st.sampled_from(pks)), "exclude"),
        "seed": asked.draw(st.integers(), "seed"),
    }
    sql, redis = by_sql(index), ByRedis(index.instance())
    for found, expected in zip(
        answers(sql, pks, distances, wish), answers(redis, pks, distances, wish), strict=True
    ):
        assert found == expected
    # Filters that one facet covers leave nothing to chance either.
    sql, narrowed = sql.filter(is_pro=True), index.ranking.filter(is_pro=True)
    for found, expected in zip(
        answers(sql, pks, distances, wish), answers(narrowed, pks, distances, wish), strict=True
    ):
        assert found == expected


@settings(examples, max_examples=EXAMPLES)
@given(
    population=populations, n=st.integers(1, 8), seed=st.integers(), case=st.sampled_from([*FILTERS.values()])
)
def test_draws_among_those_who_pass(population: dict[int, Row], n: int, seed: int, case: Any) -> None:
    """Draws that test members one by one in Redis: half before me, half after, and exactly those who pass."""
    narrow, passes = case
    population |= {500: {**next(iter(population.values()), ROW), "points": 0}}
    write(population)
    index = FACETED[0]
    drawn = narrow(by_sql(index)).recommend(500, n, band=2, seed=seed)
    everybody = Oracle(index, population, lambda row: True).pks
    oracle = Oracle(index, population, passes)
    near = [pk for pk in everybody if pk in oracle.rows and pk != 500 and abs(population[pk]["points"]) <= 2]
    better = [pk for pk in near if everybody.index(pk) < everybody.index(500)]
    pks = [entry.pk for entry in drawn]
    assert drawn.candidates == len(near)
    assert set(pks) <= set(near)
    assert len(set(pks)) == len(pks) == min(n, len(near))
    worse = len(near) - len(better)
    assert len(set(pks) & set(better)) == min(len(better), max((n + 1) // 2, n - worse))
    assert list(drawn) == oracle.entries(sorted(pks, key=oracle.pks.index))


ROW: Row = {
    "region": "kantou",
    "platform": "pc",
    "tags": frozenset({1}),
    "lost": 0,
    "total": 0,
    "joined": None,
}


def test_conditions_that_only_the_database_knows() -> None:
    write({pk: {**ROW, "points": pk, "lost": pk % 5} for pk in range(1, 101)})
    drawn = by_sql(FACETED[0]).filter(region="kantou").recommend(50, 6, band=40, where=Q(lost=0))
    assert len(drawn) == 6
    assert all(entry.pk % 5 == 0 for entry in drawn)


# Facets as the database has them


class ByText(RankIndex):
    name = "by-text"
    model = Competitor
    order = ("-points",)
    facets = ("region", "guild__slug", "guild", "joined__date", "tags__word", ("tags", "tags__word"))

    def get_facets(self) -> Any:
        return [facet for facet in self.facets if facet != "joined__date"]


def test_texts_that_the_database_takes_for_one() -> None:
    """To MariaDB "A" is "a", and so is "a "."""
    regions = ["a", "A", "a ", "ä", "b", None]
    guilds = [Guild.objects.create(slug=slug) for slug in ("x", "X")]
    write({pk: {"points": pk, "region": region} for pk, region in enumerate(regions, 1)})
    for pk, guild in enumerate(guilds, 1):
        Competitor.objects.filter(pk=pk).update(guild=guild)
    ranking = by_sql(ByText)
    for pk, region in enumerate(regions, 1):
        assert [entry.pk for entry in ranking.filter(region=region).top()] == [pk]
        assert ranking.exclude(region=region).count() == len(regions) - 1
    assert ranking.counts("region") == dict.fromkeys(regions, 1)
    assert ranking.counts("guild__slug") == {"x": 1, "X": 1, None: 4}
    assert ranking.counts("guild") == {guilds[0].pk: 1, guilds[1].pk: 1, None: 4}
    assert ranking.filter(guild__slug="X").rank(2) == 1
    assert ranking.filter(guild=guilds[1]).count() == 1
    assert ranking.exclude(guild__slug__in=["x", None]).count() == 1


def test_every_combination_of_several_values_counts() -> None:
    write({1: {"points": 5, "tags": [1, 2]}, 2: {"points": 6, "tags": []}, 3: {"points": 6, "tags": [2]}})
    ranking = by_sql(ByText)
    found = {(1, "1"): 1, (1, "2"): 1, (2, "1"): 1, (2, "2"): 2, (None, None): 1}
    assert ranking.counts("tags", "tags__word") == found
    assert ranking.counts("tags__word") == {"1": 1, "2": 2, None: 1}
    assert ranking.filter(tags__word__in=["1", "2"]).count() == 2


@pytest.mark.part("combined", "groups", "remember")
def test_what_is_in_redis_alone_is_not_made_up() -> None:
    ranking = by_sql(FACETED[0])
    write({1: {**ROW, "points": 1}})
    with pytest.raises(IndexUnavailable, match="group is only in Redis"):
        ranking.filter(group="live:42").count()
    with pytest.raises(IndexUnavailable, match="avoid"):
        ranking.recommend(1, remember=timedelta(hours=1))


def test_a_filtered_ranking_falls_back_too(zrank: Redis, settings: Any) -> None:
    """Nothing is built, and nothing is in Redis."""
    settings.ZRANK = {"UNHEALTHY": "database"}
    write({pk: {**ROW, "points": pk, "region": "kantou" if pk % 2 else "kansai"} for pk in range(1, 7)})
    ranking = CompetitorRank.ranking.filter(region="kantou")
    assert [entry.pk for entry in ranking.top()] == [5, 3, 1]
    assert ranking.ranks([1, 2, 5]) == {1: 3, 2: None, 5: 1}
    with pytest.raises(IndexUnavailable):
        CompetitorRank.ranking.filter(group="live:42").top()


# What it costs, and what it must bear


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda ranking: ranking.top(10), 3),
        (lambda ranking: ranking.around(50, 10), 4),
        (lambda ranking: ranking.rank(50), 3),
        (lambda ranking: ranking.ranks(range(1, 101)), 3),
        (lambda ranking: ranking.between(10, 20), 3),
        (lambda ranking: ranking.rank_of_score(10), 2),
        (lambda ranking: ranking.counts("region"), 1),
        (lambda ranking: ranking.recommend(50, 10, band=30), 5),
        (lambda ranking: ranking.gap(50), 4),
    ],
)
@pytest.mark.parametrize(
    "method", ["ordinal", "competition", pytest.param("dense", marks=pytest.mark.part("dense"))]
)
def test_few_queries(ask: Any, most: int, method: str) -> None:
    write({pk: {**ROW, "points": pk // 2} for pk in range(1, 101)})
    ranking = by_sql(next(index for index in INDEXES if index.name == f"two-{method}"))
    ranking.index.__dict__["faceting"] = FACETED[0].instance().faceting
    with CaptureQueriesContext(connection) as queries:
        ask(ranking)
    assert len([query for query in queries if "testapp_competitor" in query["sql"]]) <= most
    del ranking.index.__dict__["faceting"]


@pytest.mark.parametrize(
    ("method", "most"),
    [("ordinal", 4), ("competition", 4), pytest.param("dense", 6, marks=pytest.mark.part("dense"))],
)
def test_standings_take_one_scan_for_each_ranking(method: str, most: int) -> None:
    """And one more for ranks that count distinct values."""
    test_few_queries(lambda ranking: ranking.standings(50, "region"), most, method)


def test_more_members_than_a_query_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connection.features), "max_query_params", 999)
    write({pk: {**ROW, "points": pk} for pk in range(1, 1201)})
    ranking = by_sql(INDEXES[0])
    pks = [*range(1, 1201), 9999, 2**63 - 1, 2**63, 10**30]
    assert ranking.ranks(pks) == {pk: 1201 - pk if pk < 9999 else None for pk in pks}


def test_bounds_beyond_what_the_column_holds() -> None:
    write({pk: {**ROW, "points": pk} for pk in range(1, 4)})
    ranking = by_sql(INDEXES[0])
    for far in (2**31, 2**53 + 1, 2**63 - 1):
        assert ranking.rank_of_score(far) == 1
        assert ranking.rank_of_score(-far) == 4
        assert (
            ranking.count_between(-far, far),
            ranking.count_between(far),
            ranking.count_between(None, -far),
        ) == (3, 0, 0)
