"""The verbs of an index with shards."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest
from django.db.models import Q

from django_zrank import RankIndex
from tests.populations import fill, populate
from tests.sharded import COUNTS, sharded
from tests.test_ranking import FACETED, Oracle, assert_same
from tests.test_twins import ROWS
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = pytest.mark.usefixtures("zrank")


@pytest.mark.parametrize(("count", "index"), [*zip(COUNTS, cycle(FACETED), strict=False)])
def test_every_verb_answers_as_sorted_lists_do(count: int, index: type[RankIndex]) -> None:
    divided = sharded(index, count)
    populate(divided, ROWS)
    ranking, oracle = divided.ranking, Oracle(index, ROWS, lambda row: True)
    assert_same(ranking, oracle, ROWS)
    assert_same(ranking.reversed().by("competition"), oracle.reversed().by("competition"), ROWS)


@pytest.mark.parametrize("count", COUNTS)
def test_draws_of_all_candidates_are_the_same_without_shards(count: int) -> None:
    """A score for four members each, so that ranking methods differ."""
    scores = {pk: pk // 4 for pk in range(1, 200)}
    fill(PlayerAscending, scores)
    whole = PlayerAscending.ranking
    others = whole.reversed().by("competition")
    expected = draws(whole), draws(others)
    fill(sharded(PlayerAscending, count), scores)
    ranking = sharded(PlayerAscending, count).ranking
    assert (draws(ranking), draws(ranking.reversed().by("competition"))) == expected


def draws(ranking: Any) -> list[Any]:
    near = ranking.recommend(77, 200, band=(2, 3))
    many = dict(ranking.recommend_many([1, 77, 1000], 200, band=1))
    return [
        list(near),
        near.candidates,
        {pk: found and list(found) for pk, found in many.items()},
        len(ranking.recommend(77, 5, ranks=4)),
        list(ranking.recommend(77, 100, band=0, widen=[5])),
    ]


@pytest.mark.django_db
def test_where_and_coroutines() -> None:
    players = [Player(name=str(at), level=at, is_active=at % 2 == 0) for at in range(40)]
    Player.objects.bulk_create(players)
    ranking = sharded(PlayerAscending, 3).ranking
    fill(type(ranking.index), {player.pk: player.level for player in players})
    found = ranking.recommend(players[20], 6, band=10, where=Q(is_active=True))
    assert len(found) == 6
    assert all(entry.score % 2 == 0 and abs(entry.score - 20) <= 10 for entry in found)
    drawn = asyncio.run(ranking.arecommend(players[20].pk, 4, band=2, seed=5))
    assert list(drawn) == list(ranking.recommend(players[20].pk, 4, band=2, seed=5))
    shown = ranking.recommend(players[20].pk, 2, band=1, remember=timedelta(hours=1))
    (other,) = ranking.recommend(players[20].pk, 1, band=3, remember=timedelta(hours=1))
    assert other not in shown
