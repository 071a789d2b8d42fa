from __future__ import annotations

from redis import Redis

from django_zrank.store import LOAD_LIMIT, Change, Store


def test_takes_as_many_rows_as_it_says(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    assert store.load_rows("next", [Change(str(n), n) for n in range(LOAD_LIMIT)])
    assert zrank.zcard(store.keys.shadow) == LOAD_LIMIT


def test_a_member_written_since_the_start_stays_as_written(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    store.apply_changes(store.begin_write(), [Change("1", 10), Change("2", None)])
    assert store.load_rows("next", [Change("1", 1), Change("2", 2), Change("3", 3)])
    assert zrank.zrange(store.keys.shadow, 0, -1) == [b"3", b"1"]


def test_gives_way_to_a_later_rebuild(zrank: Redis, store: Store) -> None:
    store.start_rebuild("older")
    store.start_rebuild("newer")
    assert not store.load_rows("older", [Change("1", 1)])
    assert not zrank.exists(store.keys.shadow)


def test_is_a_sign_of_life(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    zrank.hset(store.keys.meta, "seen", 1)
    store.load_rows("next", [Change("1", 1)])
    assert int(zrank.hget(store.keys.meta, "seen")) >= int(zrank.hget(store.keys.meta, "started"))
