"""Keys that intersections follow are evicted, the clock is set back, a log grows."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank.requests import groups
from django_zrank.requests.counts import Size
from django_zrank.requests.pace import Pace
from django_zrank.requests.query import chained
from django_zrank.requests.request import Request
from django_zrank.requests.view import View

from .conftest import ask
from .test_following import SCOPES, World, calls_of, look_again
from .test_intersect import PiecesTied, written


@pytest.fixture
def world(zrank: Redis) -> World:
    return World(zrank, PiecesTied, "losses")


def set_back(zrank: Redis, by: int = 3600 * 10**6) -> None:
    """Let the server's clock be set back: what was noted before lies ahead of it."""
    for log in zrank.scan_iter("*:changed"):
        for member, version in zrank.zrange(log, 0, -1, withscores=True):
            zrank.zadd(log, {member: version + by})
    for making in zrank.scan_iter("*:making"):
        for field, value in zrank.hgetall(making).items():
            if field in (b"fresh", b"lease") or (field.startswith(b"version") and field != b"version1"):
                zrank.hset(making, field, int(value) + by)


def test_a_clock_that_is_set_back_hides_no_change(zrank: Redis, world: World) -> None:
    """As where a replica is promoted whose clock is behind."""
    scope = SCOPES["a group"]
    world.check(scope)
    set_back(zrank)
    world.store.run(lambda keys: groups.remove_from_group(keys, "live", ["1", "2", "3"]))
    world.group -= {1, 2, 3}
    expected = len(world.expected(scope))
    assert ask(world.store, Size(), scope=scope) == expected, "what is fresh for an hour is not believed"
    world.join(1)
    world.check(scope)


def test_nobody_waits_by_a_clock_that_was_set_back(zrank: Redis, world: World) -> None:
    view = View(world.store.layout, SCOPES["a group"])
    (call,) = chained(Size().query(view, world.store.learn())).calls
    first = Request((call,), list)
    assert world.store.send(first)[0][0] == b"going"
    set_back(zrank)
    assert world.store.send(first)[0][0] == b"going", "another client begins anew"


@pytest.mark.parametrize("lost", ["*:unfinished", "*:unfinished:noted", "*:recent"])
@pytest.mark.parametrize("phase", [b"scan", b"written"])
def test_keys_that_are_evicted_while_it_is_made(
    zrank: Redis, world: World, lost: str, phase: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "PACE", Pace(40, 40))
    scope, store = SCOPES["in a region"], world.store
    request: Any = chained(Size().query(View(store.layout, scope), store.learn()))
    at, pieces = b"", 0
    while at != phase or pieces < 4:
        request = request.parse(store.send(request))
        ((_, at),) = [(key, zrank.hget(key, "phase")) for key in zrank.scan_iter("*:making")]
        pieces += 1
        world.rows[pieces] = None
        store.apply_changes(store.begin_write(), [written(world.index, pieces, None)])
    for key in zrank.scan_iter(lost):
        zrank.unlink(key)
    while isinstance(request, Request):
        request = request.parse(store.send(request))
    for _ in range(2):  # the first one is refused: versions were evicted
        store.apply_changes(store.begin_write(), [written(world.index, 60, None)])
    world.rows[60] = None
    world.check(scope)


def test_versions_that_are_evicted_again_before_they_are_read(zrank: Redis, world: World) -> None:
    scope, store = SCOPES["no group"], world.store
    zrank.unlink(store.keys.recent)
    world.check(scope)
    for member in (1, 2):
        world.rows[member] = None
        store.apply_changes(store.begin_write(), [written(world.index, member, None)])
    zrank.unlink(store.keys.recent)
    world.check(scope)


def test_no_version_is_missed_where_none_was_written(zrank: Redis, world: World) -> None:
    """As after a rebuild, in an index whose scores begin in Redis: flushes have versions, too."""
    world.check(SCOPES["no group"])
    zrank.hset(world.store.keys.meta, "applied", 50)
    look_again(zrank)
    trips, _ = calls_of(zrank, lambda: ask(world.store, Size(), scope=SCOPES["no group"]))
    assert trips == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_group_that_is_evicted_is_empty(zrank: Redis, world: World, again: bool) -> None:
    scope = SCOPES["a group"]
    world.check(scope)
    zrank.unlink(world.store.live.group("live"))
    world.group.clear()
    if again:
        world.join(1, 50)
    world.check(scope)


def test_a_log_does_not_grow_for_ever(zrank: Redis, world: World) -> None:
    world.check(SCOPES["a group"])
    (log,) = zrank.scan_iter("*:group:live:changed")
    zrank.zadd(log, {str(pk): pk for pk in range(200_001)})
    world.join(1, 70)
    assert not zrank.exists(log)
    world.check(SCOPES["a group"])
