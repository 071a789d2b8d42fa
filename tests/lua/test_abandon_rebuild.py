from __future__ import annotations

from redis import Redis

from django_zrank.store import Change, Store


def test_clears_what_was_filled(zrank: Redis, store: Store) -> None:
    store.start_rebuild("failed")
    store.load_rows("failed", [Change("7", 7)])
    assert store.abandon_rebuild("failed")
    assert not zrank.exists(store.keys.shadow)
    assert store.begin_write().building == ""
    assert store.size() == 3


def test_leaves_a_later_rebuild_alone(zrank: Redis, store: Store) -> None:
    store.start_rebuild("older")
    store.start_rebuild("newer")
    store.load_rows("newer", [Change("7", 7)])
    assert not store.abandon_rebuild("older")
    assert zrank.zcard(store.keys.shadow) == 1
