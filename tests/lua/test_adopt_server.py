from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import IndexUnhealthy
from django_zrank.store import Change, Store


@pytest.fixture(autouse=True)
def restarted(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "run", "the server before")


def test_until_then_nothing_is_written(store: Store) -> None:
    with pytest.raises(IndexUnhealthy):
        store.begin_write()


def test_afterwards_it_is_written_to_and_not_yet_believed(store: Store) -> None:
    health = store.check_health()
    assert store.adopt_server(health.generation, health.applied, health.server)
    assert store.apply_changes(store.begin_write(), [Change("1", 10)])
    health = store.check_health()
    assert health.same_server
    assert health.behind


def test_a_rebuild_that_may_have_lost_rows_goes(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    store.load_rows("next", [Change("1", 1)])
    zrank.hset(store.keys.meta, "run", "the server before")
    assert not store.load_rows("next", [Change("2", 2)])
    assert not store.swap_rebuilt("next")
    health = store.check_health()
    assert store.adopt_server(health.generation, health.applied, health.server)
    assert not zrank.exists(store.keys.shadow)
    assert store.check_health().building == ""


def test_a_server_that_holds_something_else_by_now(store: Store) -> None:
    health = store.check_health()
    assert not store.adopt_server("another", health.applied, health.server)
    assert not store.adopt_server(health.generation, "1", health.server)
    assert not store.adopt_server(health.generation, health.applied, "another server")
    assert not store.check_health().same_server


def test_a_write_that_began_before_the_restart_is_refused(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "run", zrank.info("server")["run_id"])
    epoch = store.begin_write()
    zrank.hset(store.keys.meta, "run", "the server before")
    assert store.apply_changes(epoch, [Change("1", 10)]) is None
