from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.queries.counts import Size
from django_zrank.queries.draws import Draw
from django_zrank.queries.pages import PageAround, PageAt, TopByCommand
from django_zrank.queries.positions import Locate, PositionByCommand
from django_zrank.queries.view import View
from django_zrank.store import Change, Store
from tests.builds import load_rows, start


def test_replaces_the_live_index_and_leaves_nothing_behind(
    zrank: Redis, store: Store, live: Callable[[], dict[str, float]]
) -> None:
    start(store, "next")
    load_rows(store, "next", [Change("7", 7)])
    assert live() == {"1": 1, "2": 2, "3": 3}
    assert store.swap_rebuilt("next")
    assert live() == {"7": 7}
    store.unlink_doomed()
    assert set(zrank.keys(f"{store.keys.tag}:*")) == {store.live.root.encode(), store.keys.meta.encode()}
    meta = set(zrank.hgetall(store.keys.meta))
    assert meta == {b"applied", b"build", b"owner", b"present", b"server", b"started", b"term"}


def draws(question: Any) -> bool:
    return isinstance(question, Draw)


@pytest.mark.parametrize("ranking", ["", "region:x"])
@pytest.mark.parametrize(
    "question",
    [
        PositionByCommand("7"),
        TopByCommand(1),
        Size(),
        Locate(["7"]),
        PageAt(0, 1),
        PageAround("7", 1),
        Draw("7", 1, [(1, 1)]),
    ],
    ids=lambda question: type(question).__name__,
)
def test_whoever_believes_in_the_old_build_is_told_of_the_new_one(
    zrank: Redis, question: Any, ranking: str
) -> None:
    """Whatever is asked, of all members or of a facet's, by a command or by a script: as if it had known."""
    layout = Layout(memberships=True)
    store, view = (
        Store("model", layout),
        View(layout, ranking),
    )
    for building, members in (("first", "1234567"), ("second", "678")):
        start(store, building)
        load_rows(store, building, [Change(member, int(member), b"region:x") for member in members])
        believed = store.live.build
        assert store.swap_rebuilt(building)
    right = store.run(partial(question.steps, view))
    store.believe(believed)
    found = store.run(partial(question.steps, view))
    # Whom a draw finds is left to chance.
    assert found.candidates == right.candidates if draws(question) else found == right
    assert store.live.build == "second"


def test_costs_the_same_whatever_there_is_to_swap(zrank: Redis, store: Store) -> None:
    """Counted in commands, of 2 and of 2,000 facet rankings on both sides."""
    store, calls = Store(store.name, Layout(memberships=True)), []
    for number in (2, 2000):
        for building in (f"one{number}", f"two{number}"):
            start(store, building)
            load_rows(store, building, [Change(str(n), n, b"region:%d" % n) for n in range(number)])
            before = commands(zrank)
            assert store.swap_rebuilt(building)
            calls.append(commands(zrank) - before)
    assert calls[1] == calls[3]
    store.unlink_doomed()
    assert not [*zrank.scan_iter(match="*one*")]


def commands(zrank: Redis) -> int:
    """The number of commands that were run, those of scripts among them."""
    return sum(each["calls"] for each in zrank.info("commandstats").values())


def test_an_index_may_become_empty(zrank: Redis, store: Store) -> None:
    start(store, "next")
    assert store.swap_rebuilt("next")
    assert store.size() == 0


def test_gives_way_to_a_later_rebuild(store: Store) -> None:
    start(store, "older")
    start(store, "newer")
    assert not store.swap_rebuilt("older")
    assert store.size() == 3
