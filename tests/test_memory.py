"""The memory that an index takes."""

from __future__ import annotations

from typing import Any

from django_zrank import RankIndex
from tests.populations import load
from tests.testapp.models import Competitor

MEMBERS = 20_000
TOLERATED = 1.05  # The heights of a skip list's nodes are random.


class OneCriterion(RankIndex):
    model = Competitor
    order = ("-points",)
    name = "memory"


class TwoCriteria(OneCriterion):
    order = ("-points", "lost")
    name = "memory-2"


def ratio(index: type[RankIndex], width: int) -> float:
    """All keys of an index, where a bare sorted set of the same members and scores is 1."""
    store = load(index, ((pk, pk % 100, 7)[:width] for pk in range(MEMBERS)))
    client: Any = store.client
    for pks in (range(at, at + 500) for at in range(0, MEMBERS, 500)):
        client.zadd("bare", {str(pk): pk % 100 for pk in pks})
    keys = list(client.scan_iter(f"*{{{index.name}}}*", count=1000))
    total = sum(client.memory_usage(key, samples=0) for key in keys)
    return float(total / client.memory_usage("bare", samples=0))


def test_one_criterion_without_facets_takes_what_a_bare_sorted_set_takes(zrank: Any) -> None:
    assert ratio(OneCriterion, 2) < TOLERATED


def test_the_measure_sees_more_where_there_is_more(zrank: Any) -> None:
    assert ratio(TwoCriteria, 3) > 1.2
