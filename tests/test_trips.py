"""Calls about shards on one server, cut into round trips by what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from django_zrank.queries.request import Call, Request
from django_zrank.redis import asynchronous, executor
from django_zrank.redis.keys import Keys
from django_zrank.redis.sending import in_trips
from tests.populations import load
from tests.sharded import sharded
from tests.test_ranking import CompetitorRank


def request(costs: Sequence[int], shards: Sequence[int], *, atomic: bool = False) -> Request[Any]:
    keys = [Keys.of("zrank", f"heavy-{shard}").meta for shard in shards]
    calls = [Call("TYPE", (key,), (), cost) for key, cost in zip(keys, costs, strict=True)]
    return Request(calls, spread=True, atomic=atomic)


@pytest.mark.parametrize(
    ("costs", "atomic", "expected"),
    [
        ([500] * 6, False, [range(6)]),
        ([500] * 7, False, [[0, 1, 2, 3, 4, 5], [6]]),
        ([9000, 0, 9000, 10], False, [[0], [1, 2], [3]]),
        ([2000, 2000, 2000, 2000], True, [[0, 1], [2, 3]]),
    ],
)
def test_calls_are_cut_where_they_cost_much_but_not_within_a_transaction(
    costs: list[int], atomic: bool, expected: list[Sequence[int]]
) -> None:
    shards = [0, 0, 1, 1] if atomic else range(len(costs))
    assert in_trips(None, request(costs, shards, atomic=atomic)) == expected


def test_what_replicas_are_asked_is_not_cut() -> None:
    """They are found fresh in the same round trip."""
    asked = request([9000] * 3, range(3))._replace(replica=True)
    assert in_trips(None, asked) == [range(3)]


class Heavy(CompetitorRank):
    name = "heavy"
    order = ("-points", "lost")
    facets = ()


def test_coroutines_cut_them_too(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    index = sharded(Heavy, 7)
    load(index, ((pk, pk % 7, pk % 3) for pk in range(1, 301)))
    sent: dict[Any, list[int]] = {executor: [], asynchronous: []}

    def note(module: Any, name: str) -> None:
        send = getattr(module, name)

        def sending(client: Any, asked: Any, **how: Any) -> Any:
            calls = asked.calls if isinstance(asked, Request) else asked
            sent[module].append(sum(call.cost for call in calls))
            return send(client, asked, **how)

        monkeypatch.setattr(module, name, sending)

    note(executor, "send_spread")
    note(asynchronous, "_send_request")
    some = range(1, 301, 2)
    ranks = index.ranking.ranks(some)
    assert asyncio.run(index.ranking.aranks(some)) == ranks
    for costs in sent.values():
        assert len(costs) > 10
        assert max(costs) <= 3000
