"""Changes of scores, and what puts back a flush, take few commands."""

from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.write_behind.changes import ChangeScores
from django_zrank.write_behind.keys import once_key, pending_key
from django_zrank.write_behind.store import PendingStore
from tests.builds import TERM, load_rows, shadow, start
from tests.test_hold import FACETS, MANY, built, changes, commands_of


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("layout", [PLAIN, FACETS], ids=["plain", "facets"])
def test_a_rebuild_at_most_doubles_the_commands_of_an_increment(
    zrank: Redis, layout: Layout, key: str
) -> None:
    store = built(layout)
    ask = ChangeScores(layout, "sum", (0, 10**9), [(str(pk), 1) for pk in range(100)], key, 60)
    store.run(ask.steps)
    zrank.delete(once_key(store.keys, key))
    idle = commands_of(zrank, lambda: store.run(ask.steps))
    zrank.delete(once_key(store.keys, key))
    start(store, "b")
    assert load_rows(store, "b", changes(layout))
    assert commands_of(zrank, lambda: store.run(ask.steps)) <= 2 * idle + 10
    totals = {pk: zrank.zscore(shadow(store, "b"), str(pk)) for pk in (1, 99)}
    assert layout.memberships or totals == {1: 2, 99: 100}


@pytest.mark.parametrize(
    ("rule", "expected"), [("sum", [5, 12, 7]), ("max", [5, 7, 7]), ("min", [5, 5, 7]), ("last", [5, 7, 7])]
)
def test_a_flush_is_put_back_by_few_commands(zrank: Redis, rule: str, expected: list[int]) -> None:
    store = PendingStore("held", PLAIN)
    store.rule = rule
    start(store, "a")
    assert load_rows(store, "a", changes(PLAIN))
    assert store.swap_rebuilt("a")
    zrank.hset(pending_key(store.keys), mapping={str(pk): 5 for pk in range(MANY)})
    assert store.take_pending(TERM, 0, MANY)
    zrank.hset(pending_key(store.keys), mapping={str(pk): 7 for pk in range(MANY - 1, MANY + 1)})

    def reconcile() -> None:
        store.reconcile_pending(
            store.check_health(), 0, committed=False, everything=False, members=["1", "2"]
        )

    assert commands_of(zrank, reconcile) < 30
    pending = zrank.hgetall(pending_key(store.keys))
    assert len(pending) == MANY + 1 - 2
    assert [int(pending[b"%d" % pk]) for pk in (0, MANY - 1, MANY)] == expected
