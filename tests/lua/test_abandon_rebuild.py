from __future__ import annotations

from redis import Redis

from django_zrank.store import Change, Store
from tests.builds import load_rows, shadow, start
from tests.writes import begin_write


def test_clears_what_was_filled(zrank: Redis, store: Store) -> None:
    start(store, "failed")
    load_rows(store, "failed", [Change("7", 7)])
    assert store.abandon_rebuild("failed")
    store.unlink_doomed()
    assert not zrank.exists(shadow(store, "failed"))
    assert begin_write(store).building == ""
    assert store.size() == 3


def test_leaves_a_later_rebuild_alone(zrank: Redis, store: Store) -> None:
    start(store, "older")
    start(store, "newer")
    load_rows(store, "newer", [Change("7", 7)])
    assert not store.abandon_rebuild("older")
    assert zrank.zcard(shadow(store, "newer")) == 1
