"""The filter language: what conditions come to in Redis, and in a queryset."""

from __future__ import annotations

from typing import Any

import pytest

from django_zrank import RankIndex
from django_zrank.codec.filters import parse_conditions, plan, uncovered
from django_zrank.exceptions import FilterTooLarge
from tests.testapp.models import Competitor


class Filtered(RankIndex):
    model = Competitor
    name = "filters"
    order = ("-points",)
    facets = ("region", "platform", ("region", "platform"), ("region", "guild"), "tags")


INDEX = Filtered.instance()


def clauses_of(*steps: tuple[str, dict[str, Any]]) -> tuple[list[tuple[str, tuple[str, ...]]], str | None]:
    """The clauses of filters and exclusions, and the one ranking that covers them."""
    found = [
        condition
        for verb, given in steps
        for condition in parse_conditions(INDEX, given, negated=verb == "exclude")
    ]
    scope = plan(INDEX, found)
    return [(str(clause), clause.names) for clause in scope.clauses], scope.ranking


@pytest.mark.parametrize(
    ("steps", "clauses", "ranking"),
    [
        ([], [], ""),
        ([("filter", {})], [], ""),
        ([("filter", {"region": "a"})], [("+r1", ("region:a",))], "region:a"),
        (
            [("filter", {"platform": "pc"}), ("filter", {"region": "a"})],
            [("+r1", ("region,platform:a,pc",))],
            "region,platform:a,pc",
        ),
        ([("filter", {"region__in": ["a"]})], [("+r1", ("region:a",))], "region:a"),
        (
            [("filter", {"region__in": ["b", "a", "b"]})],
            [("+r2", ("region:a", "region:b"))],
            None,
        ),
        (
            [("filter", {"region__in": ["a", None], "platform": "pc"})],
            [("+r2", ("region,platform:*,pc", "region,platform:a,pc"))],
            None,
        ),
        ([("filter", {"region": "a"}), ("filter", {"region": "a"})], [("+r1", ("region:a",))], "region:a"),
        (
            [("filter", {"region": "a"}), ("filter", {"region": "b"})],
            [("+r1", ("region:a",)), ("+r1", ("region:b",))],
            None,
        ),
        ([("filter", {"region__in": []})], [("+r1", ("!",))], "!"),
        ([("exclude", {"region": "a"})], [("-r1", ("region:a",))], None),
        (
            [("exclude", {"region": "a", "platform": "pc"})],
            [("-r1", ("region,platform:a,pc",))],
            None,
        ),
        ([("filter", {"group": "a b"})], [("+g1", ("a%20b",))], None),
        (
            [("filter", {"group": "x", "region": "a", "guild": 3})],
            [("+g1", ("x",)), ("+r1", ("region,guild:a,3",))],
            None,
        ),
    ],
)
def test_the_sets_behind_conditions(steps: Any, clauses: Any, ranking: str | None) -> None:
    assert clauses_of(*steps) == (clauses, ranking)


@pytest.mark.parametrize("verb", ["filter", "exclude"])
def test_values_that_make_too_many_combinations(verb: str) -> None:
    """Each is a key in every call: a million of them, from two parameters of a thousand values, held the server for
    seconds."""
    few = {"region__in": [str(at) for at in range(40)], "platform__in": [str(at) for at in range(25)]}
    ((_, names),), _ = clauses_of((verb, few))
    assert len(names) == 1000
    for more in (few | {"region__in": range(41)}, {path: range(10**5) for path in few}):
        with pytest.raises(FilterTooLarge, match=r"region,platform: these values make .* combinations"):
            clauses_of((verb, more))
    assert clauses_of(("filter", {"region__in": range(1001)}))


def test_the_facet_to_declare() -> None:
    conditions = parse_conditions(INDEX, {"tags": 1, "region": "a", "group": "x"}, negated=False)
    assert uncovered(conditions) == "facets = (('tags', 'region'),)"
    assert uncovered(conditions[:1]) is None
    with pytest.raises(ValueError, match=r"guild.*facets = \('guild',\)"):
        clauses_of(("filter", {"guild": 1}))
