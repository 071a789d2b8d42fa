from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import NotBuilt
from django_zrank.store import Change, Store


def test_the_token_is_the_place_of_the_newest_write(store: Store) -> None:
    applied = store.apply_changes(store.begin_write(), [Change("1", 1)])
    assert applied
    assert store.begin_write() == store.begin_write()
    assert store.begin_write().token == str(applied.place)


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
