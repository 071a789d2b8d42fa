from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.store import Change, Health, Store
from tests.builds import OWNER, TERM, identity, start
from tests.writes import apply_changes, begin_write


def test_a_built_index(zrank: Redis, store: Store) -> None:
    health = store.check_health()
    first = {"owner": OWNER, "is_first": True, "is_evicted": False}
    state = {"build": health.build, "building": "", "behind": "", "applied": health.applied}
    noted = {"traces": "", "taken": "", "took": ""}
    servers = {"trusted": health.server, "server": identity(store), "term": str(TERM)}
    assert health == Health(**state, **servers, **noted, **first)
    assert health.is_trusted
    assert len(health.build) == 32
    assert int(health.applied) > 0


def test_an_index_that_was_never_built(zrank: Redis, store: Store) -> None:
    zrank.flushall()
    health = store.check_health()
    assert health == Health("", "", "", "", "", "", "", health.server, "", "", "", True, False)
    assert not health.is_trusted


def test_a_server_that_restarted(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", "another server")
    assert not store.check_health().is_trusted


def test_a_running_rebuild(store: Store) -> None:
    start(store, "next")
    assert store.check_health().building == "next"


def test_a_rebuild_that_went_silent(zrank: Redis, store: Store) -> None:
    start(store, "dead")
    zrank.hincrby(store.keys.meta, "heartbeat", -601 * 10**6)
    assert store.check_health().building == ""


def test_the_version_of_a_write(store: Store) -> None:
    applied = apply_changes(store, begin_write(store), [Change("1", 10)])
    assert applied
    assert store.check_health().applied == str(applied.version)


@pytest.mark.parametrize("part", ["", ":memberships", ":rankings", ":region:kantou"])
def test_a_key_that_was_evicted(zrank: Redis, store: Store, part: str) -> None:
    store = Store(store.name, Layout(memberships=True))
    assert apply_changes(store, begin_write(store), [Change("1", 5, b"region:kantou")])
    assert not store.check_health().is_evicted
    zrank.delete(f"{store.live.root}{part}")
    assert store.check_health().is_evicted


def test_an_index_that_became_empty_is_intact(zrank: Redis, store: Store) -> None:
    assert apply_changes(store, begin_write(store), [Change(member, None) for member in "123"])
    assert not zrank.exists(store.live.root)
    assert not store.check_health().is_evicted
