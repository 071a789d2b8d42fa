from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import NotBuilt
from django_zrank.store import Change, Store


def test_tokens_only_grow(zrank: Redis, store: Store) -> None:
    tokens = [int(store.begin_write().token) for _ in range(100)]
    assert tokens == sorted(set(tokens))


def test_tokens_grow_past_a_clock_that_was_set_back(zrank: Redis, store: Store) -> None:
    ahead = 2**52
    zrank.hset(store.keys.meta, "token", ahead)
    assert store.begin_write().token == str(ahead + 1)


def test_tokens_lie_above_every_write(store: Store) -> None:
    applied = store.apply_changes(store.begin_write(), [Change("1", 1)])
    assert applied
    assert int(store.begin_write().token) > applied.place


def test_two_writes_that_begin_after_a_quiet_hour_are_both_taken(zrank: Redis, store: Store) -> None:
    zrank.hincrby(store.keys.meta, "token", -3600 * 10**6)
    first, second = store.begin_write(), store.begin_write()
    assert store.apply_changes(first, [Change("1", 1)])
    assert store.apply_changes(second, [Change("2", 1)])


def test_names_both_generations(store: Store) -> None:
    before = store.begin_write()
    assert (bool(before.generation), before.building) == (True, "")
    store.start_rebuild("next")
    assert store.begin_write()[:2] == (before.generation, "next")


def test_refuses_an_index_that_was_never_built(zrank: Redis, store: Store) -> None:
    zrank.delete(store.keys.meta)
    with pytest.raises(NotBuilt):
        store.begin_write()


def test_clears_a_rebuild_that_went_silent(zrank: Redis, store: Store) -> None:
    store.start_rebuild("dead")
    store.load_rows("dead", [Change("1", 1)])
    zrank.hincrby(store.keys.meta, "seen", -601 * 10**6)
    assert store.begin_write().building == ""
    assert not zrank.exists(store.keys.shadow)
    assert not store.load_rows("dead", [Change("2", 2)])
    assert not store.swap_rebuilt("dead")
