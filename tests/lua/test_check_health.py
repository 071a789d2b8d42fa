from __future__ import annotations

from redis import Redis

from django_zrank.store import Change, Health, Store


def test_a_built_index(store: Store) -> None:
    health = store.check_health()
    assert health == Health(health.generation, "", "", health.applied, health.server, health.server)
    assert health.same_server
    assert len(health.generation) == 32
    assert int(health.applied) > 0


def test_an_index_that_was_never_built(zrank: Redis, store: Store) -> None:
    zrank.flushall()
    health = store.check_health()
    assert health == Health("", "", "", "", "", health.server)
    assert not health.same_server


def test_a_server_that_restarted(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "run", "another server")
    assert not store.check_health().same_server


def test_a_running_rebuild(store: Store) -> None:
    store.start_rebuild("next")
    assert store.check_health().building == "next"


def test_a_rebuild_that_went_silent(zrank: Redis, store: Store) -> None:
    store.start_rebuild("dead")
    zrank.hincrby(store.keys.meta, "seen", -601 * 10**6)
    assert store.check_health().building == ""


def test_the_place_of_a_write(store: Store) -> None:
    applied = store.apply_changes(store.begin_write(), [Change("1", 10)])
    assert applied
    assert store.check_health().applied == str(applied.place)
