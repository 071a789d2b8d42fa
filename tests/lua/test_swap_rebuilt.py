from __future__ import annotations

from collections.abc import Callable

from redis import Redis

from django_zrank.store import Change, Store


def test_replaces_the_live_index_and_leaves_nothing_behind(
    zrank: Redis, store: Store, live: Callable[[], dict[str, float]]
) -> None:
    store.start_rebuild("next")
    store.load_rows("next", [Change("7", 7)])
    assert live() == {"1": 1, "2": 2, "3": 3}
    assert store.swap_rebuilt("next")
    assert live() == {"7": 7}
    assert set(zrank.keys(f"{store.keys.live.rpartition(':')[0]}:*")) == {
        store.keys.live.encode(),
        store.keys.meta.encode(),
    }
    assert set(zrank.hgetall(store.keys.meta)) == {b"applied", b"generation", b"run", b"started", b"token"}


def test_an_index_may_become_empty(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    assert store.swap_rebuilt("next")
    assert store.size() == 0


def test_gives_way_to_a_later_rebuild(store: Store) -> None:
    store.start_rebuild("older")
    store.start_rebuild("newer")
    assert not store.swap_rebuilt("older")
    assert store.size() == 3


def test_happens_once(store: Store) -> None:
    store.start_rebuild("next")
    assert store.swap_rebuilt("next")
    assert not store.swap_rebuilt("next")
