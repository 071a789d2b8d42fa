from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.queries import positions
from django_zrank.queries.positions import Location, Placement, Placements
from django_zrank.store import Store
from tests.populations import populate
from tests.testapp.models import Competitor

from .conftest import ask


class Placed(RankIndex):
    name = "placed"
    model = Competitor
    order = ("-points",)
    facets = ("region", "platform", ("region", "platform"), "tags")


@pytest.fixture
def placed(zrank: Redis) -> Store:
    """Five members: 1 has 10 points, 2 and 3 have 20, 4 and 5 have 30. The even ones are from the region b."""

    def row(pk: int) -> dict[str, Any]:
        return {"points": pk // 2 * 10 + 10, "region": "ab"[pk % 2 == 0], "platform": None, "tags": {1, pk}}

    return populate(Placed, {pk: row(pk) for pk in range(1, 6)})


def placement(name: str, size: int, position: int, before: int, better: int) -> Placement:
    return Placement(name, size, Location(position, before, b"3", 20.0), better)


def test_the_rankings_of_a_member(placed: Store) -> None:
    everybody, region = placement("", 5, 2, 2, 2), placement("region:a", 3, 1, 1, 1)
    assert ask(placed, Placements("3", ["region"]), reverse=True) == [everybody, region]
    assert ask(placed, Placements("3"), reverse=True) == [everybody]
    by_competition = ask(placed, Placements("3", ["region", "tags"]), reverse=True, method="competition")
    assert by_competition == [
        everybody,
        region,
        placement("tags:1", 5, 2, 2, 2),
        placement("tags:3", 1, 0, 0, 0),
    ]
    ascending = ask(placed, Placements("3", ["region", "tags"]))
    assert ascending[0] == placement("", 5, 2, 2, 1)
    assert ascending[2] == placement("tags:1", 5, 2, 2, 1)


def test_a_facet_is_named_in_full(placed: Store) -> None:
    (_, both) = ask(placed, Placements("3", ["region,platform"]), reverse=True)
    assert both.ranking == "region,platform:a,*"


def test_within_another_ranking(placed: Store) -> None:
    """That one is the first, and only once."""
    found = ask(placed, Placements("3", ["region", "platform"]), reverse=True, ranking="region:a")
    assert [one.ranking for one in found] == ["region:a", "platform:*"]
    assert ask(placed, Placements("3", ["region"]), reverse=True, ranking="region:b") == []


def test_who_is_not_ranked(placed: Store) -> None:
    assert ask(placed, Placements("9", ["region"])) == []


def test_a_few_in_each_round_trip(placed: Store) -> None:
    question = Placements("3", ["region", "platform", "region,platform", "tags"])
    expected = ask(placed, question, reverse=True)
    assert len(expected) == 6
    for most in (1, 2, 3, 5, 6):
        with mock.patch.object(positions, "_RANKINGS", most):
            assert ask(placed, question, reverse=True) == expected
