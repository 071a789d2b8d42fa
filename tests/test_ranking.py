"""Every verb of a ranking against sorted lists: both directions, every ranking method, facets, filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from importlib import import_module
from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_zrank import Entry, NotRanked, RankIndex
from django_zrank.methods import methods
from django_zrank.ranking import Ranking
from tests.populations import populate
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Tag
from tests.without_parts.parts import PARTS

REGIONS = ("kantou", "kansai", None)
PLATFORMS = ("pc", "ps")
TAGS = (1, 2, 3)
TOTALS = (
    *(-(2**63), 1 - 2**63, -(2**53) - 1, -(2**53), 1 - 2**53, -1, 0, 7),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1),
)


class CompetitorRank(RankIndex):
    model = Competitor
    order = ("-points",)
    facets = ("region", "platform", ("region", "platform"), "tags")
    band = 2


def declare(name: str, order: tuple[str, ...], method: str, facets: Any) -> type[RankIndex]:
    attributes = {"name": name, "order": order, "ranking_method": method, "facets": facets}
    return type("Rank", (CompetitorRank,), attributes)


ORDERS = {
    "down": ("-points",),
    "up": ("points",),
    "two": ("-points", "lost"),
    "three": ("points", "-lost", "-joined"),
    "wide": ("-total",),
    "wide two": ("total", "-lost"),
}
INDEXES = [
    declare(f"{name}-{method}", order, method, ()) for name, order in ORDERS.items() for method in methods
]
FACETED = [
    declare(f"{name}-{method}-facets", ORDERS[name], method, CompetitorRank.facets)
    for name, method in (
        ("down", "ordinal"),
        ("two", KEEPING),
        ("three", "competition"),
        ("wide two", KEEPING),
    )
]

Row = dict[str, Any]

rows = st.fixed_dictionaries(
    {
        "points": st.integers(-3, 3),
        "total": st.sampled_from(TOTALS),
        "lost": st.integers(0, 2),
        "joined": st.sampled_from(
            [None, datetime(2024, 2, 29, tzinfo=UTC), datetime(1600, 1, 1, tzinfo=UTC)]
        ),
        "region": st.sampled_from(REGIONS),
        "platform": st.sampled_from(PLATFORMS),
        "tags": st.frozensets(st.sampled_from(TAGS)),
    }
)
populations = st.dictionaries(st.integers(1, 120), rows, max_size=25)


def write(rows: Mapping[int, Row]) -> None:
    """Make the competitors, in the database alone, exactly ``rows``: primary key -> columns, ``tags`` among them."""
    tags = Competitor.tags.through
    tags.objects.all()._raw_delete("default")
    Competitor.objects.all()._raw_delete("default")
    Tag.objects.bulk_create([Tag(pk=pk, word=str(pk)) for pk in TAGS], ignore_conflicts=True)
    columns = ({name: value for name, value in row.items() if name != "tags"} for row in rows.values())
    Competitor.objects.bulk_create(
        Competitor(pk=pk, **values) for pk, values in zip(rows, columns, strict=True)
    )
    tags.objects.bulk_create(
        tags(competitor_id=pk, tag_id=tag) for pk, row in rows.items() for tag in row.get("tags", ())
    )


class Oracle:
    """A ranking as a sorted list."""

    def __init__(
        self, index: type[RankIndex], rows: Mapping[int, Row], passes: Callable[[Row], bool]
    ) -> None:
        self.index = index
        self.method = index.ranking_method
        self.descending = index.order[0].startswith("-")
        self.paths = [path.removeprefix("-") for path in index.order]
        self.rows = {pk: row for pk, row in rows.items() if passes(row)}
        # Python's sort is stable: by the last criterion first.
        ranked = sorted(self.rows, key=lambda pk: str(pk).encode(), reverse=self.descending)
        for criterion in reversed(index.order):
            path, reverse = criterion.removeprefix("-"), criterion.startswith("-")
            # Nulls are last, whatever the direction.
            nulls = [pk for pk in ranked if self.rows[pk][path] is None]
            ranked = [pk for pk in ranked if self.rows[pk][path] is not None]
            ranked.sort(key=lambda pk: self.rows[pk][path], reverse=reverse)
            ranked += nulls
        self.pks = ranked

    def by(self, method: str) -> Oracle:
        oracle = copy(self)
        oracle.method = method
        return oracle

    def reversed(self) -> Oracle:
        oracle = copy(self)
        oracle.pks, oracle.descending = self.pks[::-1], not self.descending
        return oracle

    def values(self, pk: int) -> tuple[Any, ...]:
        return tuple(self.rows[pk][path] for path in self.paths)

    def rank(self, pk: int) -> int:
        place = self.pks.index(pk)
        better = [self.values(other) for other in self.pks[:place] if self.values(other) != self.values(pk)]
        return 1 + {"ordinal": place, "competition": len(better), "dense": len(set(better))}[self.method]

    def entry(self, pk: int) -> Entry:
        return Entry(pk, self.values(pk)[0], self.rank(pk), self.values(pk))

    def entries(self, pks: Iterable[int]) -> list[Entry]:
        return [self.entry(pk) for pk in pks]

    def around(self, pk: int, n: int) -> list[Entry]:
        first = max(0, min(self.pks.index(pk) - n // 2, len(self.pks) - n))
        return self.entries(self.pks[first : first + n])

    def rank_of_score(self, score: int) -> int:
        better = [
            pk
            for pk in self.pks
            if (self.values(pk)[0] > score if self.descending else self.values(pk)[0] < score)
        ]
        return 1 + (len({self.values(pk) for pk in better}) if self.method == "dense" else len(better))

    def between(self, low: int | None, high: int | None) -> list[int]:
        return [
            pk
            for pk in self.pks
            if (low is None or self.values(pk)[0] >= low) and (high is None or self.values(pk)[0] <= high)
        ]

    def percentile(self, pk: int) -> float:
        same = [other for other in self.pks if self.values(other) == self.values(pk)]
        first = self.pks.index(same[0])
        return 100.0 if len(self.pks) == 1 else 100.0 * (1 - first / (len(self.pks) - 1))


def assert_same(ranking: Ranking, oracle: Oracle, everybody: Iterable[int]) -> None:
    """Whatever can be asked, of everybody."""
    pks, size = oracle.pks, len(oracle.pks)
    assert ranking.count() == size
    assert ranking.top(7) == oracle.entries(pks[:7])
    for first in range(0, size + 2, 3):
        assert ranking[first : first + 3] == oracle.entries(pks[first : first + 3])
    for place, pk in [*enumerate(pks)][:: 1 + size // 6]:
        assert ranking[place] == ranking.at_rank(place + 1) == ranking.entry(pk) == oracle.entry(pk)
        assert ranking.rank(pk) == oracle.rank(pk)
        assert ranking.score(pk) == oracle.values(pk)[0]
        for n in (1, 4, size + 3):
            assert ranking.around(pk, n) == oracle.around(pk, n)
            for page, expected in (
                (ranking.after(oracle.entry(pk), n), pks[place + 1 :][:n]),
                (ranking.before(oracle.entry(pk), n), pks[max(0, place - n) : place]),
            ):
                assert page == oracle.entries(expected)
                if expected:
                    assert page.has_previous == (expected[0] != pks[0])
                    assert page.has_next == (expected[-1] != pks[-1])
        assert pk in ranking
    strangers = [pk for pk in everybody if pk not in oracle.rows]
    for pk in [*strangers[:2], 999]:
        for ask in (ranking.rank, ranking.score, ranking.entry, ranking.around):
            with pytest.raises(NotRanked):
                ask(pk)
    assert not any(pk in ranking for pk in [*strangers, 999])
    assert list(ranking) == oracle.entries(pks)
    assert bool(ranking) == bool(pks)
    with pytest.raises(IndexError):
        ranking[size]
    with pytest.raises(NotRanked):
        ranking.at_rank(size + 1)
    asked = [*pks[::2], *strangers, 999]
    assert ranking.ranks(asked) == {pk: oracle.rank(pk) if pk in oracle.rows else None for pk in asked}
    assert ranking.members(asked) == oracle.entries(pks[::2])
    scores = sorted({oracle.values(pk)[0] for pk in pks} | {-4, -1, 0, 2})
    bounds = scores[:: max(1, len(scores) // 3)]
    pairs = [*combinations_with_replacement(bounds, 2), (bounds[-1], bounds[0])]
    pairs += [(None, None), *((None, high) for high in bounds), *((low, None) for low in bounds)]
    for at, (low, high) in enumerate(pairs):
        found, offset = oracle.between(low, high), at % 2
        assert ranking.between(low, high) == oracle.entries(found)
        assert ranking.between(low, high, n=2, offset=offset) == oracle.entries(found[offset : offset + 2])
        assert ranking.count_between(low, high) == len(found)
    for score in {*range(-4, 5), *scores, *(score + 1 for score in scores if score < 2**63 - 1)}:
        assert ranking.rank_of_score(score) == oracle.rank_of_score(score)
    if PARTS["statistics"].is_there:
        import_module("tests.test_statistics").assert_same(ranking, oracle, everybody)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.name)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(population=populations)
def test_every_verb(index: type[RankIndex], population: dict[int, Row]) -> None:
    populate(index, population)
    assert_same(index.ranking, Oracle(index, population, lambda row: True), population)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.name)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(population=populations)
def test_other_methods_and_the_other_direction(index: type[RankIndex], population: dict[int, Row]) -> None:
    populate(index, population)
    oracle = Oracle(index, population, lambda row: True)
    assert_same(index.ranking.reversed(), oracle.reversed(), population)
    assert index.ranking.reversed().reversed().view == index.ranking.view
    for method in {"ordinal", "competition"} - {index.ranking_method}:
        assert_same(index.ranking.by(method), oracle.by(method), population)
        assert_same(index.ranking.reversed().by(method), oracle.by(method).reversed(), population)
    if index.ranking_method == "dense":
        assert index.ranking.by("ordinal").by("dense").view == index.ranking.view
    elif "dense" in methods:
        with pytest.raises(ValueError, match=r"by: .* keeps no distinct values"):
            index.ranking.by("dense")


FILTERS: dict[str, tuple[Callable[[Ranking], Ranking], Callable[[Row], bool]]] = {
    "one value": (lambda all_: all_.filter(region="kantou"), lambda row: row["region"] == "kantou"),
    "null": (lambda all_: all_.filter(region=None), lambda row: row["region"] is None),
    "to many": (lambda all_: all_.filter(tags=2), lambda row: 2 in row["tags"]),
    "nothing to many": (lambda all_: all_.filter(tags=None), lambda row: not row["tags"]),
    "composite": (
        lambda all_: all_.filter(platform="pc", region="kansai"),
        lambda row: row["platform"] == "pc" and row["region"] == "kansai",
    ),
    "composite, one after the other": (
        lambda all_: all_.filter(region="kansai").filter(platform="pc"),
        lambda row: row["platform"] == "pc" and row["region"] == "kansai",
    ),
    "one of none": (lambda all_: all_.filter(tags__in=[]), lambda row: False),
}
if PARTS["combined"].is_there:
    FILTERS |= {
        "one of": (lambda all_: all_.filter(tags__in=[1, 3]), lambda row: bool({1, 3} & row["tags"])),
        "composite of": (
            lambda all_: all_.filter(platform__in=["pc", "ps"], region__in=["kansai", None]),
            lambda row: row["region"] in ("kansai", None),
        ),
        "both": (lambda all_: all_.filter(tags=1).filter(tags=2), lambda row: {1, 2} <= row["tags"]),
        "uncovered": (
            lambda all_: all_.filter(tags=1, region="kantou"),
            lambda row: 1 in row["tags"] and row["region"] == "kantou",
        ),
        "not": (lambda all_: all_.exclude(region="kantou"), lambda row: row["region"] != "kantou"),
        "not both": (
            lambda all_: all_.exclude(region="kantou", platform="pc"),
            lambda row: not (row["region"] == "kantou" and row["platform"] == "pc"),
        ),
        "and, or, not": (
            lambda all_: all_.filter(tags__in=[1, 2], region__in=["kantou", "kansai"]).exclude(platform="pc"),
            lambda row: bool({1, 2} & row["tags"]) and row["region"] is not None and row["platform"] != "pc",
        ),
    }


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("case", FILTERS.values(), ids=list(FILTERS))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(population=populations, index=st.sampled_from(FACETED))
def test_filters(case: Any, population: dict[int, Row], index: type[RankIndex]) -> None:
    narrow, passes = case
    populate(index, population)
    assert_same_under_filters(narrow(index.ranking), Oracle(index, population, passes), population)


def assert_same_under_filters(ranking: Any, oracle: Oracle, population: dict[int, Row]) -> None:
    """Also of values of facets, which are counted among those who pass."""
    rows = oracle.rows.values()
    assert_same(ranking, oracle, population)
    if not PARTS["combined"].is_there:
        return
    assert ranking.counts("region") == Counter(row["region"] for row in rows)
    assert ranking.counts("tags") == Counter(tag for row in rows for tag in row["tags"] or [None])
    both = Counter((row["platform"], row["region"]) for row in rows)
    assert ranking.counts("platform", "region") == both


@pytest.mark.part("combined")
@pytest.mark.usefixtures("zrank")
def test_thousands_of_values() -> None:
    index = FACETED[0]
    rows = {
        pk: {"points": pk, "lost": 0, "region": "kantou", "platform": "pc", "tags": {2000 * pk}}
        for pk in range(1, 7)
    }
    populate(index, rows)
    ranking = index.ranking.filter(platform="pc")
    assert [entry.pk for entry in ranking.filter(tags__in=range(1, 9000)).top()] == [4, 3, 2, 1]
    assert [entry.pk for entry in ranking.exclude(tags__in=range(1, 9000)).top()] == [6, 5]
