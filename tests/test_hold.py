"""Nothing holds the server: no call of a script does more than so much, whatever the operation. No clock is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from django_zrank import store as store_module
from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.store import Change, Store
from tests.builds import load_rows, start
from tests.writes import apply_changes, begin_write

CEILING = 2400
"""The most look-ups and writes of one call: a few milliseconds. A value of a command counts as one."""

MANY = 1500
"""Members, of a quarter as many facet rankings."""

FACETS = Layout(width=8, memberships=True)
DENSE = Layout(width=8, memberships=True, beside="dense")

Operation = Callable[[], Any]


def changes(layout: Layout, moved: int = 0) -> list[Change]:
    """All members, as they are, or moved to other facets."""
    if not layout.memberships:
        return [Change(str(pk), pk + moved) for pk in range(MANY)]
    return [
        Change(
            str(pk),
            pk + moved,
            b"%08d" % (pk % 9) + b"platform:%d\0region+platform:%d\0region:%d" % (a, b, c),
        )
        for pk in range(MANY)
        for a, b, c in [((pk + moved) % 6, (pk + moved) % (MANY // 4), (pk + moved) % 8)]
    ]


def built(layout: Layout) -> Store:
    store = Store("held", layout)
    start(store, "a")
    assert load_rows(store, "a", changes(layout))
    assert store.swap_rebuilt("a")
    return store


def load(layout: Layout) -> Operation:
    store = Store("held", layout)
    start(store, "a")
    return lambda: load_rows(store, "a", changes(layout))


def load_what_was_written(layout: Layout) -> Operation:
    store = built(layout)
    start(store, "b")
    apply_changes(store, begin_write(store), changes(layout)[::2])
    return lambda: load_rows(store, "b", changes(layout))


def write(layout: Layout) -> Operation:
    store = built(layout)
    return lambda: apply_changes(store, begin_write(store), changes(layout, moved=1))


def write_during_a_rebuild(layout: Layout) -> Operation:
    store = built(layout)
    start(store, "b")
    return lambda: apply_changes(store, begin_write(store), changes(layout, moved=1))


def remove(layout: Layout) -> Operation:
    store = built(layout)
    return lambda: apply_changes(store, begin_write(store), [Change(str(pk), None) for pk in range(MANY)])


def unlink(layout: Layout) -> Operation:
    store = built(layout)
    start(store, "b")
    assert store.swap_rebuilt("b")
    return store.unlink_doomed


WRITES = [load, load_what_was_written, write, write_during_a_rebuild, remove, unlink]


@contextmanager
def watched(client: Redis) -> Iterator[list[int]]:
    """The cost to the server of each call that is made inside, once it is left."""
    costs: list[int] = []
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield costs
        client.echo("over")  # type: ignore[no-untyped-call]
        while b'"ECHO"' not in (line := monitor.connection.read_response()):
            if b" lua] " in line:  # as its words are in quotes, a space between two is one of `" "`
                costs[-1] += max(1, line.count(b'" "') - 1)
            else:
                costs.append(0)


@pytest.mark.parametrize(
    "layout",
    [PLAIN, FACETS, pytest.param(DENSE, marks=pytest.mark.part("dense"))],
    ids=["plain", "facets", "dense"],
)
@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.__name__)
def test_no_call_does_more_than_the_ceiling(
    zrank: Redis, operation: Callable[[Layout], Operation], layout: Layout
) -> None:
    run = operation(layout)
    with watched(zrank) as costs:
        run()
    assert max(costs) <= CEILING


@pytest.mark.parametrize("operation", [load, write, remove], ids=lambda operation: operation.__name__)
def test_what_is_not_cut_is_noticed(
    zrank: Redis, operation: Callable[[Layout], Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = operation(FACETS)
    monkeypatch.setattr(store_module, "WRITTEN", 10**9)
    monkeypatch.setattr(store_module, "LOADED", 10**9)
    with watched(zrank) as costs:
        run()
    assert max(costs) > CEILING


@pytest.mark.parametrize("operation", [load, write], ids=lambda operation: operation.__name__)
def test_members_of_the_same_facets_are_written_together(
    zrank: Redis, operation: Callable[[Layout], Operation]
) -> None:
    """Not with a command for each member and ranking, however the rows come."""
    run = operation(FACETS)
    before = zrank.info("commandstats")
    run()
    after: Any = zrank.info("commandstats")
    commands, calls = (
        after[name]["calls"] - before.get(name, {"calls": 0})["calls"]  # type: ignore[union-attr]
        for name in ("cmdstat_zadd", "cmdstat_evalsha")
    )
    # Members of one large ranking are of two platforms, so these are written twice; those of the others in each piece.
    others = 1 + 6 + 8
    assert calls > 2
    assert commands <= MANY // 2 + (1 + others) * (calls + 1)


def commands_of(client: Redis, operation: Operation) -> int:
    client.config_resetstat()
    operation()
    stats: Any = client.info("commandstats")
    return sum(one["calls"] for one in stats.values())
