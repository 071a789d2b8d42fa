from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import IndexUnhealthy, NotBuilt
from django_zrank.store import Change, Store
from tests.builds import TERM, identity, load_rows, shadow, start
from tests.writes import apply_changes, begin_write


def test_the_token_is_the_version_of_the_newest_write(store: Store) -> None:
    applied = apply_changes(store, begin_write(store), [Change("1", 1)])
    assert applied
    assert int(begin_write(store).token) == applied.version


def test_the_term_is_that_of_the_server_that_is_trusted(store: Store) -> None:
    assert begin_write(store).term == str(TERM)


def test_another_history_of_the_same_process_is_not_written_to(zrank: Redis, store: Store) -> None:
    run, _, _ = identity(store).partition("/")
    zrank.hset(store.keys.meta, "server", f"{run}/{'0' * 40}")
    with pytest.raises(IndexUnhealthy):
        begin_write(store)


def test_names_both_builds(store: Store) -> None:
    before = begin_write(store)
    assert (bool(before.build), before.building) == (True, "")
    start(store, "next")
    assert begin_write(store)[:2] == (before.build, "next")


def test_refuses_an_index_that_was_never_built(zrank: Redis, store: Store) -> None:
    zrank.delete(store.keys.meta)
    with pytest.raises(NotBuilt):
        begin_write(store)


def test_gives_up_a_rebuild_that_went_silent(zrank: Redis, store: Store) -> None:
    start(store, "dead")
    load_rows(store, "dead", [Change("1", 1)])
    zrank.hincrby(store.keys.meta, "heartbeat", -601 * 10**6)
    assert begin_write(store).building == ""
    store.unlink_doomed()
    assert not zrank.exists(shadow(store, "dead"))
    assert not load_rows(store, "dead", [Change("2", 2)])
    assert not store.swap_rebuilt("dead")
