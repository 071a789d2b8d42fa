from __future__ import annotations

from redis import Redis

from django_zrank.store import Store
from tests.builds import start


def test_only_the_replay_that_was_named(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "behind", "2")
    assert not store.finish_replay("1")
    assert store.check_health().behind == "2"
    assert store.finish_replay("2")
    assert store.check_health().behind == ""


def test_a_rebuild_finishes_every_replay(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", "the server before")
    start(store, "next")
    assert store.check_health().behind == "rebuild"
    store.swap_rebuilt("next")
    assert store.check_health().behind == ""
