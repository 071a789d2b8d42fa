from __future__ import annotations

from redis import Redis

from django_zrank.store import Store


def test_leaves_the_live_index_alone_and_clears_what_was_left(zrank: Redis, store: Store) -> None:
    store.start_rebuild("killed")
    store.load_rows("killed", [(1, "1")])
    store.apply_changes(store.begin_write(), [("7", 7)])
    store.start_rebuild("next")
    assert not zrank.exists(store.keys.shadow, store.keys.recent)
    assert zrank.zcard(store.keys.live) == 4


def test_its_token_lies_above_every_earlier_one(zrank: Redis, store: Store) -> None:
    earlier = int(store.begin_write().token)
    store.start_rebuild("next")
    assert earlier < int(zrank.hget(store.keys.meta, "started")) < int(store.begin_write().token)
