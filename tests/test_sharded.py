"""Indexes of several shards answer as one of the same members does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_zrank.exceptions import NotRanked
from tests.populations import fill
from tests.sharded import COUNTS, sharded
from tests.testapp.zrank import PlayerAscending

pytestmark = pytest.mark.usefixtures("zrank")

SCORES = {pk: pk * pk % 101 for pk in range(1, 400)}


@pytest.mark.parametrize("count", COUNTS)
class TestSums:
    def test_size_and_scores(self, count: int) -> None:
        ranking = sharded(PlayerAscending, count).ranking
        fill(type(ranking.index), SCORES)
        assert ranking.count() == len(SCORES)
        assert [ranking.score(pk) for pk in SCORES] == list(SCORES.values())
        assert 7 in ranking
        assert 1000 not in ranking
        with pytest.raises(NotRanked):
            ranking.score(1000)

    def test_in_coroutines(self, count: int) -> None:
        ranking = sharded(PlayerAscending, count).ranking
        fill(type(ranking.index), SCORES)

        async def ask() -> list[Any]:
            return await asyncio.gather(ranking.acount(), ranking.ascore(7))

        assert asyncio.run(ask()) == [len(SCORES), 49]
