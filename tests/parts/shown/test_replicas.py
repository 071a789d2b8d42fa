"""Shown columns as a replica has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_zrank import Ranking
from django_zrank.replicas.reading import replicas_of
from tests.populations import load
from tests.sharded import sharded
from tests.test_replicas import ROWS, Pair, Replicated, on_a_pair, pair, registered, shared  # noqa: F401 - fixtures

READS: list[Callable[[Ranking], Any]] = [
    lambda ranking: ranking.recommend(7, 3),
    lambda ranking: ranking.top(3),
    lambda ranking: ranking.around(7, 2),
    lambda ranking: [ranking.entry(7)],
    lambda ranking: ranking.filter(region="r").top(3),
]


class Shown(Replicated):
    name = "shown-replicated"
    shown = ("region", "lost")


@on_a_pair
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.django_db
def test_a_replica_answers_with_what_is_shown(pair: Pair, shards: int) -> None:  # noqa: F811
    index = sharded(Shown, shards)
    load(index, ROWS)
    pair.catch_up()
    replicas_of.cache_clear()
    index.ranking.using("replica").top(1)
    rows = {pk: {"region": region, "lost": lost} for pk, _, lost, region, _ in ROWS}
    for read in READS:
        answer, from_replica = pair.answers(lambda read=read: read(index.ranking.using("replica")))  # type: ignore[misc]
        assert from_replica
        assert [entry.shown for entry in answer] == [rows[entry.pk] for entry in answer] != []
