"""Intersections follow what changes, from one call to the next."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from time import time
from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.engine.executor import Executor
from django_zrank.facets import Facet
from django_zrank.filters import Clause, Scope
from django_zrank.requests import groups
from django_zrank.requests.counts import CountFacet, Size
from django_zrank.requests.pace import Pace
from django_zrank.requests.pages import PageAt
from django_zrank.requests.query import chained
from django_zrank.requests.request import Request
from django_zrank.requests.view import View
from django_zrank.store import Change
from tests.populations import fill, populate
from tests.test_ranking import Row
from tests.testapp.zrank import PlayerAscending

from .conftest import ask
from .test_intersect import Pieces, PiecesDense, PiecesTied, passes, person, populate_again, written

REGION = Facet(("region",), (), many=False)
SCOPES = {
    "a group": Scope((Clause(False, "g", ("live",)),)),
    "in a region": Scope(
        (Clause(False, "g", ("live",)), Clause(False, "r", ("region:kantou", "region:tohoku")))
    ),
    "not in it": Scope((Clause(True, "g", ("live",)), Clause(False, "r", ("platform:pc",)))),
    "no group": Scope(
        (Clause(False, "r", ("platform:pc", "platform:ps")), Clause(True, "r", ("region:kansai",)))
    ),
}


def look_again(zrank: Redis) -> None:
    """Let what was made be as old as it may be before the next call looks for changes."""
    for key in zrank.scan_iter("*:making"):
        zrank.hset(key, "fresh", 1)


class World:
    """An index, and a group; the same in Python."""

    def __init__(self, zrank: Redis, index: type[RankIndex], seed: str) -> None:
        self.zrank, self.index, self.rng = zrank, index, random.Random(seed)
        self.rows: dict[int, Row | None] = {pk: person(self.rng) for pk in range(1, 61)}
        self.store = populate(index, self.rows)  # type: ignore[arg-type]
        self.group: set[int] = set()
        self.join(*range(1, 40))

    def join(self, *members: int, lifetime: float = float("inf")) -> None:
        texts = [str(member) for member in members]
        self.store.run(lambda keys: groups.add_to_group(keys, "live", texts, lifetime))
        self.group.update(members)

    def change(self) -> None:
        """Members join, renew, leave, expire, are written or deleted; all leave at times; or the server is emptied."""
        rng = self.rng
        for member in rng.sample(range(1, 61), 3):
            self.rows[member] = rng.choice([person(rng), person(rng), None])
            self.store.apply_changes(
                self.store.begin_write(), [written(self.index, member, self.rows[member])]
            )
        self.join(*rng.sample(range(1, 70), 2), lifetime=rng.choice([6e15, 5e15, float("inf")]))
        leaving = rng.sample(range(1, 70), 2)
        self.store.run(lambda keys: groups.remove_from_group(keys, "live", [*map(str, leaving)]))
        self.group.difference_update(leaving)
        expiring = rng.sample(sorted(self.group) or [1], 1)
        self.join(*expiring, lifetime=-1000)
        self.group.difference_update(expiring)
        if rng.random() < 0.05:
            self.store.run(lambda keys: groups.clear_group(keys, "live"))
            self.group.clear()
        if rng.random() < 0.05:
            self.rows = {pk: person(rng) for pk in range(1, 61)}
            populate_again(self.index, self.rows)  # type: ignore[arg-type]
            self.join(*self.group or [70])  # the server was emptied

    def expected(self, scope: Scope) -> dict[int, Row]:
        return {pk: one for pk, one in self.rows.items() if one and passes(scope, pk, one, self.group)}

    def check(self, scope: Scope) -> None:
        look_again(self.zrank)
        expected = self.expected(scope)
        counted = ask(self.store, CountFacet(REGION), scope=scope)
        assert counted == Counter(f"region:{one['region']}".encode() for one in expected.values())
        page = ask(self.store, PageAt(0, 1000), scope=scope)
        found = {int(self.store.layout.split(stored)[1]): score for stored, score in page.members}
        assert found == {pk: one["points"] for pk, one in expected.items()}
        assert len(page.members) == len(found), "nobody twice"


@pytest.mark.parametrize("index", [Pieces, PiecesTied, PiecesDense])
@pytest.mark.parametrize("scope", SCOPES.values(), ids=list(SCOPES))
@pytest.mark.parametrize("work", [1500, 40])
def test_it_is_what_it_would_be_if_it_were_made_anew(
    zrank: Redis, index: type[RankIndex], scope: Scope, work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "PACE", Pace(work, work))
    world = World(zrank, index, f"{index.name} {scope} {work}")
    for _ in range(15):
        for _ in range(world.rng.randrange(4)):
            world.change()
        world.check(scope)
    assert all(
        0 < zrank.ttl(key) <= 60
        for pattern in ("*:intersection*", "*:changed")
        for key in zrank.scan_iter(pattern)
    )
    assert zrank.exists(world.store.live.intersections)


@pytest.fixture
def world(zrank: Redis) -> World:
    return World(zrank, PiecesTied, "one")


def calls_of(zrank: Redis, work: Callable[[], Any]) -> tuple[int, list[int]]:
    """Round trips, and the commands of each."""
    commands, send = [], Executor.send

    def sending(self: Executor, request: Any) -> list[Any]:
        zrank.config_resetstat()
        replies = send(self, request)
        stats: Any = zrank.info("commandstats")
        commands.append(sum(one["calls"] for one in stats.values()))
        return replies

    with mock.patch.object(Executor, "send", sending):
        work()
    return len(commands), commands


def test_an_audience_that_changes_is_counted_in_one_round_trip_of_few_commands(zrank: Redis) -> None:
    """Independent of its size: 4,000 in it, of which 100 join and leave before each call."""
    store = populate(
        Pieces,
        {pk: {"points": pk, "lost": 0, "region": "ab"[pk % 2], "platform": "pc"} for pk in range(1, 4001)},
    )
    members = [str(pk) for pk in range(1, 4001)]
    store.run(lambda keys: groups.add_to_group(keys, "live", members, float("inf")))

    def count() -> None:
        assert sum(ask(store, CountFacet(REGION), scope=SCOPES["a group"]).values()) == size

    size = 4000
    trips, _ = calls_of(zrank, count)
    assert trips > 8
    for at in range(0, 1000, 100):
        leaving = members[at : at + 100]
        assert store.run(lambda keys, leaving=leaving: groups.remove_from_group(keys, "live", leaving)) == 100  # type: ignore[misc]
        size -= 100
        look_again(zrank)
        trips, commands = calls_of(zrank, count)
        assert trips == 1
        assert commands[0] < 60


def test_so_many_writes_that_to_make_it_anew_takes_less(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(PlayerAscending, {pk: pk for pk in range(1, 1301)})
    scope = Scope((Clause(False, "g", ("live",)),))
    store.run(lambda keys: groups.add_to_group(keys, "live", ["1", "2", "1300"], float("inf")))
    assert ask(store, Size(), scope=scope) == 3
    store.apply_changes(store.begin_write(), [Change(str(pk), None) for pk in range(2, 1205)])
    look_again(zrank)
    (making,) = zrank.scan_iter("*:making")
    before = zrank.hget(making, "version1")
    view = View(store.layout, scope)
    call = chained(Size().query(view, store.live)).calls[0]
    assert store.send(Request((call,), list))[0][0] == b"going"
    assert not zrank.hexists(making, "in_place"), "it is begun anew"
    assert before != zrank.hget(making, "version1")
    zrank.hset(making, "lease", 1)
    assert ask(store, Size(), scope=scope) == 2


def test_writers_who_never_rest_are_not_followed_for_ever(
    zrank: Redis, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round trip finds more changes than it applies."""
    monkeypatch.setattr(View, "PACE", Pace(30, 30))
    send, sends = Executor.send, 0

    def sending(self: Executor, request: Any) -> list[Any]:
        nonlocal sends
        if "intersect" in str(request.calls[0].command):
            sends += 1
            assert sends < 1000, "it never ends"
            with mock.patch.object(Executor, "send", send):
                world.rows |= {member: person(world.rng) for member in range(1, 11)}
                changes = [written(world.index, member, world.rows[member]) for member in range(1, 11)]
                world.store.apply_changes(world.store.begin_write(), changes)
        return send(self, request)

    with mock.patch.object(Executor, "send", sending):
        ask(world.store, PageAt(0, 1000), scope=SCOPES["a group"])
    assert sends > 50
    world.check(SCOPES["a group"])  # what was left is read next


@pytest.mark.parametrize("lost", ["*:changed", "*:recent", "*:noted"])
def test_what_it_follows_by_may_be_evicted(zrank: Redis, world: World, lost: str) -> None:
    scope = SCOPES["in a region"]
    world.check(scope)
    world.change()
    for key in zrank.scan_iter(lost):
        zrank.unlink(key)
    world.store.apply_changes(world.store.begin_write(), [])
    world.check(scope)
    world.change()
    world.check(scope)


def test_old_changes_are_forgotten(zrank: Redis, world: World) -> None:
    scope = SCOPES["a group"]
    world.check(scope)
    (log,) = zrank.scan_iter("*:group:live:changed")
    world.change()
    world.check(scope)
    assert zrank.zcard(log) > 3
    for member, version in zrank.zrange(log, 0, -1, withscores=True):
        zrank.zadd(log, {member: version - 10**9})
    world.check(scope)
    assert zrank.zrange(log, 0, -1) == [b"\0"]
    world.change()
    world.check(scope)


def test_it_is_read_as_it_is_for_a_second(zrank: Redis, world: World) -> None:
    world.check(SCOPES["a group"])
    for key in zrank.scan_iter("*:making"):
        assert 0 < int(zrank.hget(key, "fresh") or 0) - time() * 1e6 < 1.5e6
