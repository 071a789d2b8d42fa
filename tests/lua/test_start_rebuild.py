from __future__ import annotations

from redis import Redis

from django_zrank.store import Change, Store


def test_leaves_the_live_index_alone_and_clears_what_was_left(zrank: Redis, store: Store) -> None:
    store.start_rebuild("killed")
    store.load_rows("killed", [Change("1", 1)])
    store.apply_changes(store.begin_write(), [Change("7", 7)])
    store.start_rebuild("next")
    assert not zrank.exists(store.keys.shadow, store.keys.recent)
    assert zrank.zcard(store.keys.live) == 4


def test_its_token_lies_above_every_earlier_one(zrank: Redis, store: Store) -> None:
    earlier = int(store.begin_write().token)
    store.start_rebuild("next")
    assert earlier < int(zrank.hget(store.keys.meta, "started")) < int(store.begin_write().token)


def test_a_polite_one_waits_for_a_rebuild_that_is_alive(zrank: Redis, store: Store) -> None:
    assert store.start_rebuild("running")
    assert not store.start_rebuild("polite", polite=True)
    assert store.load_rows("running", [Change("1", 1)])
    zrank.hincrby(store.keys.meta, "seen", -601 * 10**6)
    assert store.start_rebuild("polite", polite=True)
    assert not store.load_rows("running", [Change("1", 1)])
