"""Shards of one server are read by one script, unless they lie in slots of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from django_zrank.exceptions import NotBuilt
from django_zrank.queries.request import Request
from django_zrank.redis import executor, reader_of
from django_zrank.redis.keys import tag_of
from django_zrank.store import Store
from tests.populations import fill
from tests.sharded import sharded
from tests.test_ranking import CompetitorRank
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = pytest.mark.usefixtures("zrank")

SHARDS = 5

READS: dict[str, Callable[[Any], Any]] = {
    "rank": lambda ranking: ranking.rank(50),
    "rank of a row": lambda ranking: ranking.rank(Player(pk=50, level=50)),
    "rank of a row with an old score": lambda ranking: ranking.rank(Player(pk=50, level=49)),
    "competition": lambda ranking: ranking.by("competition").rank(50),
    "reversed": lambda ranking: ranking.reversed().rank(50),
    "best": lambda ranking: ranking.rank(1),
    "last": lambda ranking: ranking.rank(99),
    "draw": lambda ranking: [entry.rank for entry in ranking.recommend(50, 99, band=100)],
    "draw for a row with an old score": lambda ranking: [
        entry.rank for entry in ranking.recommend(Player(pk=50, level=10), 4, band=2)
    ],
}


@pytest.fixture
def ranking() -> Any:
    """Players 1 to 99; the score of each is its primary key, and so is its rank."""
    index = sharded(PlayerAscending, SHARDS)
    fill(index, {pk: pk for pk in range(1, 100)})
    return index.ranking


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The indexes that each call is about, by the tags of its keys."""
    noted: list[set[str]] = []
    send_request = executor.send_request

    def note(client: Any, request: Request) -> list[Any]:
        noted.extend({tag_of(key) for key in call.keys} for call in request.calls)
        return send_request(client, request)

    monkeypatch.setattr(executor, "send_request", note)
    return noted


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server refuse calls about several slots, as one of a cluster does."""
    send_request = executor.send_request

    def refuse(client: Any, request: Request) -> list[Any]:
        if any(len({tag_of(key) for key in call.keys}) > 1 for call in request.calls):
            raise ResponseError("CROSSSLOT Keys in request don't hash to the same slot")
        return send_request(client, request)

    monkeypatch.setattr(executor, "send_request", refuse)


EXPECTED = {
    **dict.fromkeys(("rank", "rank of a row", "rank of a row with an old score", "competition"), 50),
    "reversed": 50,
    "best": 1,
    "last": 99,
    "draw": [*range(1, 50), *range(51, 100)],
    "draw for a row with an old score": [48, 49, 51, 52],
}


@pytest.mark.parametrize("read", READS)
def test_one_script_reads_all_shards(ranking: Any, calls: list[set[str]], read: str) -> None:
    ranking.count()  # which looks at the server's health
    calls.clear()
    assert READS[read](ranking) == EXPECTED[read]
    assert {len(tags) for tags in calls} == {SHARDS}


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("read", READS)
def test_a_server_that_takes_one_slot_a_call_is_asked_so(ranking: Any, read: str) -> None:
    reader: Any = reader_of(ranking.index)
    reader._are_apart = False
    assert READS[read](ranking) == EXPECTED[read]
    assert reader._are_apart
    reader._are_apart = False


@pytest.mark.parametrize("read", READS)
def test_a_shard_that_is_gone_is_noticed(ranking: Any, read: str) -> None:
    """Nothing is found in it, which isn't the same as a shard without members."""
    ranking.count()
    store = Store(ranking.index.holders[2].name)
    store.client.delete(store.live.root, store.keys.meta)
    with pytest.raises(NotBuilt):
        READS[read](ranking)


def test_a_shard_that_was_swapped_is_read_anew(ranking: Any) -> None:
    ranking.count()
    own = ranking.index.holder_of("50")
    store = Store(own.name)
    members = store.client.zrange(store.live.root, 0, -1, withscores=True)
    store.client.delete(store.live.root)
    store.client.zadd(store.keys.at(f"{store.live.build}2").root, dict(members))
    store.client.hset(store.keys.meta, "build", f"{store.live.build}2")
    assert ranking.rank(50) == 50
    assert len(ranking.recommend(50, 99, band=100)) == 98


@pytest.mark.part("shown")
def test_attachments_are_read_from_each_shard(calls: list[set[str]]) -> None:
    class Named(CompetitorRank):
        name = "named-together"
        shown = ("region",)

    index = sharded(Named, 3)
    fill(index, {1: 5, 2: 6})
    assert index.ranking.rank(1) == 2
    assert {len(tags) for tags in calls} == {1}
