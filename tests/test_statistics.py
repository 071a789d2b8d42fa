"""Percentiles, tiers, histograms and snapshots, against sorted lists."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from django_zrank import NotRanked, RankIndex
from django_zrank.codec.filters import Condition
from django_zrank.ranking import Ranking
from tests.populations import fill, populate
from tests.test_ranking import CompetitorRank, Oracle, Row
from tests.testapp.models import Ticket
from tests.testapp.zrank import PlayerRank


def assert_same(ranking: Ranking, oracle: Oracle, everybody: Iterable[int]) -> None:
    """Whatever statistics can be asked, of everybody: called by that of all other verbs, in ``test_ranking``."""
    pks, size = oracle.pks, len(oracle.pks)
    asked = getattr(ranking, "asked", ranking)  # without what makes it run coroutines
    for pk in pks[:: 1 + size // 6]:
        assert ranking.percentile(pk) == pytest.approx(oracle.percentile(pk))
        assert ranking.standing(pk) == (oracle.entry(pk), size, ranking.percentile(pk))
        better = [other for other in pks[: pks.index(pk)] if oracle.rank(other) < oracle.rank(pk)]
        above = oracle.entry(better[-1]) if better else None
        assert ranking.gap(pk) == (oracle.entry(pk), above, above and abs(above.score - oracle.values(pk)[0]))
        if asked.view.ranking is not None:
            assert_standings(ranking, asked.conditions, oracle, pk)
    strangers = [pk for pk in everybody if pk not in oracle.rows]
    for pk in [*strangers[:2], 999]:
        asks = [ranking.percentile, ranking.standing, ranking.gap]
        for ask in asks if asked.view.ranking is None else [*asks, ranking.standings]:
            with pytest.raises(NotRanked):
                ask(pk)
    if isinstance(ranking, Ranking) and ranking.view.ranking is not None:
        assert list(ranking.snapshot()) == oracle.entries(pks)
        assert list(ranking.snapshot(5)) == oracle.entries(pks[:5])
    for wanted in (0, 25, 50, 99.5, 100):
        reach = [pk for pk in pks if oracle.percentile(pk) >= wanted]
        assert ranking.score_at_percentile(wanted) == (oracle.values(reach[-1])[0] if reach else None)
    for pk in pks[::5]:
        better = sum(oracle.values(other) != oracle.values(pk) for other in pks[: pks.index(pk)])
        tier = sum(share * size <= 100 * better for share in (10, 25, 62.5))
        assert ranking.tier(pk, (10, 25, 62.5)) == tier
    bins = ranking.histogram(4)
    assert sum(found.members for found in bins) == size
    assert len(bins) <= 4
    for low, high, count in bins:
        assert count == len(oracle.between(low, high))
    assert not bins or (bins[0].low, bins[-1].high) == (
        min(oracle.values(pk)[0] for pk in pks),
        max(oracle.values(pk)[0] for pk in pks),
    )


def assert_standings(ranking: Ranking, conditions: Iterable[Condition], oracle: Oracle, pk: int) -> None:
    """In the ranking, and in those of facets that hold some of its members."""
    given = {path: value for one in conditions for path, (value,) in one.values.items()}

    def values(row: Row, path: str) -> set[Any]:
        return set(row[path] or [None]) if path == "tags" else {row[path]}

    def among(values_of: dict[str, Any]) -> tuple[Any, ...]:
        passing = copy(oracle)
        passing.pks = [
            other
            for other in oracle.pks
            if all(value in values(oracle.rows[other], path) for path, value in values_of.items())
        ]
        return values_of, passing.entry(pk), len(passing.pks), pytest.approx(passing.percentile(pk))

    faceting = oracle.index.instance().faceting
    expected = [among(given)]
    for paths in [path if isinstance(path, tuple) else (path,) for path in oracle.index.facets]:
        if given.keys() < set(paths):
            mine = product(*(values(oracle.rows[pk], path) for path in paths))
            found = [dict(zip(paths, chosen, strict=True)) for chosen in mine]
            found.sort(key=lambda one: faceting.of(one).ranking(one.values()))
            expected += [among(one) for one in found if given.items() <= one.items()]
    assert ranking.standings(pk) == expected


@pytest.mark.usefixtures("zrank")
def test_standings_under_one_of_several_values() -> None:
    """Those of a member's other values aren't among them."""
    attributes = {"name": "several-values", "facets": ("tags", ("platform", "tags"))}
    index = type("Rank", (CompetitorRank,), attributes)
    rows = {pk: {"points": pk, "platform": "pc", "tags": {1, pk}} for pk in range(1, 5)}
    populate(index, rows)
    for tag, size in ((1, 4), (3, 1)):
        standings = index.ranking.filter(tags=tag).standings(3)
        assert [(one.values, one.size) for one in standings] == [
            ({"tags": tag}, size),
            ({"platform": "pc", "tags": tag}, size),
        ]
    assert len(index.ranking.standings(3, "tags")) == 3
    for paths in (("platform",), ("region",), ("tags", "region")):
        with pytest.raises(ValueError, match=f"standings: .* has no facet {paths[-1]!r}"):
            index.ranking.standings(3, *paths)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize(
    ("column", "scores"),
    [
        ("real", [-1e308, -0.5, 0.0, 1e-300, 3.25, 1e308]),
        ("real", [7.5]),
        # Rounding once made ranges that began after their end, or beyond all scores.
        *(("real", scores) for scores in ([0.1], [0.3, 0.3], [1.1, 1.1000000000000003], [-0.7], [5e-324])),
        ("real", [1e308, -1e308]),
        ("price", [Decimal("-0.01"), Decimal("12.34"), Decimal("12.35")]),
        ("day", [date(1999, 12, 31), date(2026, 2, 28), date(2026, 3, 1)]),
        ("flag", [True, False, True]),
        ("integer", [-(2**63), 2**53 + 1, 2**53 + 2, 2**63 - 1]),
        ("integer", []),
    ],
)
def test_histograms_of_every_kind(column: str, scores: list[Any]) -> None:
    index = type("Rank", (RankIndex,), {"name": f"bins-{column}", "model": Ticket, "order": (column,)})
    populate(index, {uuid4(): {column: score} for score in scores})
    for bins in (1, 2, 3, 7, 20, 49, 100):
        found = index.ranking.histogram(bins)
        assert len(found) <= bins
        assert all(one.low <= one.high for one in found)
        assert not scores or (found[0].low, found[-1].high) == (min(scores), max(scores))
        assert [one.members for one in found] == [
            sum(one.low <= score <= one.high for score in scores) for one in found
        ]
        assert sum(one.members for one in found) == len(scores)
    median = index.ranking.score_at_percentile(50)
    assert median == (sorted(scores)[(len(scores) - 1) // 2] if scores else None)


@pytest.mark.usefixtures("zrank")
def test_the_score_at_the_percentile_of_a_member_is_its_own() -> None:
    """99.9 as a float is a little more than 99.9."""
    for size in (11, 1001):
        fill(PlayerRank, {score: score for score in range(size)})
        ranking = PlayerRank.ranking
        for score in range(0, size, 7):
            assert ranking.score_at_percentile(ranking.percentile(score)) == score
    assert (ranking.percentile(999), ranking.score_at_percentile(99.9)) == (99.9, 999)


@pytest.mark.usefixtures("zrank")
def test_a_tier_is_no_larger_than_its_share() -> None:
    """A tenth of a percent as a float is a little more than that."""
    fill(PlayerRank, {score: score for score in range(1000)})
    tiers = [PlayerRank.ranking.tier(score, (0.1, 1.1)) for score in (999, 998, 989, 988)]
    assert tiers == [0, 1, 1, 2]


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize(
    ("column", "scores"),
    [
        ("real", [0.5, 0.25, 0.25, -1.0]),
        ("price", [Decimal("12.34"), Decimal("12.35")]),
        ("day", [date(2026, 2, 28), date(2026, 3, 1), date(1, 1, 1)]),
        ("moment", [datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        ("span", [timedelta(microseconds=1), timedelta(0), timedelta(9)]),
        ("flag", [True, False, False]),
        ("integer", [-(2**63), 2**53 + 1, 2**53 + 2, 2**63 - 1]),
    ],
)
@pytest.mark.parametrize("direction", ["", "-"])
def test_a_gap_is_exact_and_of_the_type_of_a_difference(
    column: str, scores: list[Any], direction: str
) -> None:
    attributes = {"name": f"gap-{column}", "model": Ticket, "order": (direction + column,)}
    index = type("Rank", (RankIndex,), {**attributes, "ranking_method": "competition"})
    keys = {uuid4(): score for score in scores}
    populate(index, {key: {column: score} for key, score in keys.items()})
    best_first = sorted(set(scores), reverse=direction == "-")
    for key, score in keys.items():
        entry, above, distance = index.ranking.gap(key)
        at = best_first.index(score)
        assert (entry.pk, entry.score) == (key, score)
        if at:
            expected = abs(best_first[at - 1] - score)
            assert above is not None
            assert (above.score, distance, type(distance)) == (best_first[at - 1], expected, type(expected))
        else:
            assert above is distance is None
