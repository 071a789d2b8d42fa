from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.store import Change, Replaced, Standing, Store
from tests.builds import start


def generation(store: Store) -> str:
    return store.check_health().generation


def write(store: Store, changes: list[Change]) -> int:
    applied = store.apply_changes(store.begin_write(), changes)
    assert applied
    return applied.version


def test_scores_and_places_of_members_that_are_there_or_not(store: Store) -> None:
    place = write(store, [Change("2", 2.5), Change("3", None), Change(b"\xff", 7)])
    assert store.read_members(generation(store), ["1", b"2", "3", b"\xff", "4"]) == [
        Standing(1, None),
        Standing(2.5, place),
        Standing(None, place),
        Standing(7, place),
        Standing(None, None),
    ]


def test_a_write_between_two_readings_shows_even_where_it_changed_nothing(store: Store) -> None:
    before = store.read_members(generation(store), ["1", "2"])
    store.apply_changes(store.begin_write(), [Change("1", 1)])
    after = store.read_members(generation(store), ["1", "2"])
    assert before[0].score == after[0].score
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_places_are_not_rounded(store: Store) -> None:
    place = write(store, [Change("1", 1)])
    assert store.read_members(generation(store), ["1"]) == [Standing(1, place)]


def test_another_generation(store: Store) -> None:
    before = generation(store)
    start(store, "next")
    store.read_members(before, ["1"])
    store.swap_rebuilt("next")
    with pytest.raises(Replaced):
        store.read_members(before, ["1"])


def test_a_server_that_restarted(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", "another server")
    with pytest.raises(Replaced):
        store.read_members(generation(store), ["1"])


def test_an_emptied_server(zrank: Redis, store: Store) -> None:
    before = generation(store)
    zrank.flushall()
    with pytest.raises(Replaced):
        store.read_members(before, ["1"])


def test_more_members_than_a_stack_holds(store: Store) -> None:
    found = store.read_members(generation(store), [str(number) for number in range(20_000)])
    assert len(found) == 20_000
    assert found[:4] == [Standing(None, None), Standing(1, None), Standing(2, None), Standing(3, None)]
