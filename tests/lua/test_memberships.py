"""Rankings, memberships and counts, against a model in plain Python: all keys, after every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import store as store_module
from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.index import methods
from django_zrank.store import Change, Store
from tests.builds import TERM, load_rows, shadow, start
from tests.keyspace import beneath, everything, expected, membership_of
from tests.writes import apply_changes, begin_write

LAYOUTS = {
    name: layout
    for name, layout in {
        "plain": PLAIN,
        "dense": Layout(beside="dense"),
        "memberships": Layout(memberships=True),  # facets, or one wide criterion
        "memberships and dense": Layout(memberships=True, beside="dense"),
        "two criteria": Layout(8, memberships=True),
        "two criteria and dense": Layout(8, memberships=True, beside="dense"),
        "three with nulls and dense": Layout(17, memberships=True, beside="dense"),
    }.items()
    if layout.beside in ("", *methods)
}
RANKINGS = [
    "region:kantou",
    "region:*",
    "region:",
    "guild__slug:a%3Ab",
    "region,platform:kantou,pc",
    "memberships:x",
]


def ties(layout: Layout) -> st.SearchStrategy[bytes]:
    if not layout.memberships:
        return st.just(b"")
    few = st.sampled_from([bytes(8), b"\xff" * 8, b"\0\0region", b"region:k"])
    if layout.width:
        return few.map(lambda tie: (tie * 3)[: layout.width])
    return st.one_of(st.just(b""), few.map(lambda tie: b"\0" + tie))


ATTACHMENTS = (b"[]", b'["kantou:","\\u0000"]', b"[[")
"""Of an index whose members have one."""


FEW = ("1", "2", "3", "ü", "region:kantou")


def changes(
    layout: Layout, members: Sequence[str] = FEW, *, attached: bool = False
) -> st.SearchStrategy[Change]:
    rankings = st.sets(st.sampled_from(RANKINGS), max_size=4) if layout.memberships else st.just(set())
    return st.builds(
        lambda member, score, tie, names, attachment: Change(
            member, score, b"" if score is None else membership_of(tie, names, attachment)
        ),
        st.sampled_from(members),
        st.one_of(st.none(), st.sampled_from([0, 1, -1, 2.5, 0.25, 2**53, -(2**53)])),
        ties(layout),
        rankings,
        st.sampled_from(ATTACHMENTS) if attached and layout.memberships else st.just(b""),
    )


def steps(layout: Layout, *, attached: bool) -> st.SearchStrategy[list[Any]]:
    step = st.one_of(
        st.lists(changes(layout, attached=attached), min_size=1, max_size=4),
        st.sampled_from(["start", "load", "load again", "swap", "abandon", "dead"]),
    )
    return st.lists(step, max_size=14)


class Model:
    """The contents that both roots must have. The database is what was written last."""

    def __init__(self, client: Redis, layout: Layout) -> None:
        self.client, self.layout = client, layout
        client.flushall()
        self.store = Store("model", layout)
        self.live: dict[str, tuple[float, bytes]] = {}
        self.shadow: dict[str, tuple[float, bytes]] = {}
        self.written: set[str] = set()
        self.snapshot: list[Change] | None = None
        self.building = ""
        start(self.store, "first")
        self.store.swap_rebuilt("first")

    def write(self, changes: list[Change]) -> None:
        assert apply_changes(self.store, begin_write(self.store), changes)
        # In one write, the first change of a member counts: the second has the same token.
        for member, score, membership in reversed(changes):
            for root in (self.live, self.shadow) if self.snapshot is not None else (self.live,):
                root.pop(str(member), None)
                if score is not None:
                    root[str(member)] = (score, membership)
            self.written.add(str(member))

    def start(self) -> None:
        self.building = uuid4().hex
        assert start(self.store, self.building)
        self.snapshot = [Change(member, *rest) for member, rest in self.live.items()]
        self.shadow, self.written = {}, set()

    def load(self, rows: int = 2, *, again: bool = False) -> None:
        if self.snapshot is None:
            return
        batch = self.snapshot[:rows]
        if batch:
            for _ in range(1 + again):  # as where an answer was lost, and the client asks once more
                assert load_rows(self.store, self.building, batch)
        for member, score, membership in batch:
            if member not in self.written:
                self.shadow[str(member)] = (score or 0, membership)
        del self.snapshot[:rows]

    def swap(self) -> None:
        if self.snapshot is None:
            assert not self.store.swap_rebuilt(self.building)
            return
        self.load(100)
        assert self.store.swap_rebuilt(self.building)
        assert self.shadow == self.live
        self.snapshot, self.shadow = None, {}

    def abandon(self) -> None:
        assert self.store.abandon_rebuild(self.building) == (self.snapshot is not None)
        self.snapshot, self.shadow = None, {}

    def dead(self) -> None:
        """A rebuild that was silent for long is cleared by the next write that begins."""
        if self.snapshot is not None:
            self.client.hincrby(self.store.keys.meta, "heartbeat", -601 * 10**6)
            begin_write(self.store)
            self.snapshot, self.shadow = None, {}

    def compare(self) -> None:
        self.store.unlink_doomed()
        live, layout = self.store.live.root, self.layout
        assert everything(self.client, live) == expected(live, self.live, layout)
        if self.building:
            root = shadow(self.store, self.building)
            held = self.live if root == live else self.shadow
            assert everything(self.client, root) == expected(root, held, layout)


@pytest.mark.parametrize("attached", [False, True], ids=["", "attached"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_key_is_what_the_members_make_it(zrank: Redis, layout: Layout, attached: bool) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(steps(layout, attached=attached))
    def run(steps: list[Any]) -> None:
        model = Model(zrank, layout)
        for step in steps:
            if isinstance(step, list):
                model.write(step)
            elif step == "load again":
                model.load(again=True)
            else:
                getattr(model, step)()
            model.compare()

    run()


@pytest.mark.parametrize("attached", [False, True], ids=["", "attached"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_many_members_at_once_in_pieces(
    zrank: Redis, layout: Layout, attached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that leave a ranking, enter it or stay are told by one command each, for all of a piece."""
    monkeypatch.setattr(store_module, "WRITTEN", 10)
    monkeypatch.setattr(store_module, "LOADED", 10)
    changed = changes(layout, attached=attached, members=[str(number) for number in range(25)])

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.lists(changed, min_size=1, max_size=40), min_size=2, max_size=3))
    def run(writes: list[list[Change]]) -> None:
        model = Model(zrank, layout)
        for number, write in enumerate(writes):
            model.write(write)
            model.compare()
            if not number:
                model.start()
        model.swap()
        model.compare()

    run()


def build(layout: Layout, *members: Change) -> Store:
    store, building = Store("model", layout), uuid4().hex
    start(store, building)
    assert load_rows(store, building, members)
    assert store.swap_rebuilt(building)
    store.unlink_doomed()
    return store


FACETS = Layout(memberships=True, beside="dense" if "dense" in methods else "")


def test_an_old_layout_is_cleared_by_the_next_rebuild(zrank: Redis) -> None:
    build(FACETS, Change("1", 5, b"region:kantou"), Change("2", 6, b"region:kansai"))
    store = build(PLAIN, Change("1", 5))
    assert everything(zrank, store.live.root) == {store.live.root: {b"1": 5}}


@pytest.mark.part("dense")
def test_a_restarted_server_loses_the_whole_shadow(zrank: Redis) -> None:
    store = build(FACETS, Change("1", 5, b"region:kantou"))
    start(store, "next")
    load_rows(store, "next", [Change("1", 5, b"region:kantou")])
    zrank.hset(store.keys.meta, "server", "the server before")
    health = store.check_health()
    assert store.adopt_server(health, TERM + 1, behind=True)
    store.unlink_doomed()
    assert everything(zrank, shadow(store, "next")) == {}
    assert len(everything(zrank, store.live.root)) == 8


def test_another_write_mends_what_a_member_lacks(zrank: Redis) -> None:
    one = Change("1", 5, b"guild:a\0region:kantou")
    store = build(FACETS, one, Change("2", 6, b"guild:a"))
    whole = beneath(zrank, store.live.root)
    for fault in (
        lambda live: zrank.zrem(f"{live}:region:kantou", "1"),
        lambda live: zrank.hdel(f"{live}:memberships", "1"),
        lambda live: zrank.zrem(live, "1"),
    ):
        fault(store.live.root)
        assert beneath(zrank, store.live.root) != whole
        apply_changes(store, begin_write(store), [one])
        found = beneath(zrank, store.live.root)
        for key in list(found):
            if key.endswith((":counts", ":values")):  # these count what is done through the scripts
                del found[key]
        assert found == {key: value for key, value in whole.items() if key in found}
        build(FACETS, one, Change("2", 6, b"guild:a"))


def test_more_members_than_a_stack_holds(zrank: Redis) -> None:
    store = Store("model", FACETS)
    start(store, "first")
    rows = [Change(str(n), n % 7, b"region:%d" % (n % 3)) for n in range(3500)]
    assert load_rows(store, "first", rows)
    assert store.swap_rebuilt("first")
    members = {str(row.member): (row.score or 0, row.membership) for row in rows}
    assert everything(zrank, store.live.root) == expected(store.live.root, members, FACETS)
