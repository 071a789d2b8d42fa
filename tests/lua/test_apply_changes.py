from __future__ import annotations

from collections.abc import Callable

from redis import Redis

from django_zrank.store import Change, Store

Live = Callable[[], dict[str, float]]


def test_sets_and_removes(store: Store, live: Live) -> None:
    assert store.apply_changes(
        store.begin_write(), [Change("1", 10), Change("3", None), Change("4", 4.5), Change("9", None)]
    )
    assert live() == {"1": 10, "2": 2, "4": 4.5}


def test_the_later_reading_wins_whatever_comes_first(store: Store, live: Live) -> None:
    earlier, later = store.begin_write(), store.begin_write()
    assert store.apply_changes(later, [Change("1", 20), Change("2", None)])
    assert store.apply_changes(earlier, [Change("1", 10), Change("2", 10), Change("3", 10)])
    assert live() == {"1": 20, "3": 10}


def test_refuses_what_began_before_a_rebuild(store: Store, live: Live) -> None:
    epoch = store.begin_write()
    store.start_rebuild("next")
    assert not store.apply_changes(epoch, [Change("1", 10)])
    epoch = store.begin_write()
    store.swap_rebuilt("next")
    assert not store.apply_changes(epoch, [Change("1", 10)])
    assert live() == {}


def test_writes_to_what_is_being_built_too(store: Store, live: Live) -> None:
    store.start_rebuild("next")
    store.load_rows("next", [Change("1", 1), Change("2", 2)])
    assert store.apply_changes(store.begin_write(), [Change("1", 10), Change("2", None)])
    assert live() == {"1": 10, "3": 3}
    store.swap_rebuilt("next")
    assert live() == {"1": 10}


def test_a_first_build_shows_nothing_before_it_is_complete(zrank: Redis, store: Store, live: Live) -> None:
    zrank.flushall()
    store.start_rebuild("first")
    assert store.apply_changes(store.begin_write(), [Change("1", 10)])
    assert not zrank.exists(store.keys.live)
    store.swap_rebuilt("first")
    assert live() == {"1": 10}


def test_refuses_what_is_older_than_the_guard_remembers(zrank: Redis, store: Store, live: Live) -> None:
    slow = store.begin_write()
    zrank.hincrby(store.keys.meta, "token", 601 * 10**6)
    assert not store.apply_changes(slow, [Change("1", 10)])
    assert live() == {"1": 1, "2": 2, "3": 3}


def test_the_guard_forgets_after_its_window(zrank: Redis, store: Store) -> None:
    store.apply_changes(store.begin_write(), [Change("1", 10)])
    assert zrank.zcard(store.keys.recent) == 1
    zrank.hincrby(store.keys.meta, "token", 601 * 10**6)
    store.apply_changes(store.begin_write(), [Change("2", 10)])
    assert zrank.zrange(store.keys.recent, 0, -1) == [b"2"]


def test_the_guard_forgets_few_at_a_time(zrank: Redis, store: Store) -> None:
    """What a drain of millions has written must not be forgotten in one call: the server would stand still."""
    zrank.zadd(store.keys.recent, {f"old{number}": 1 for number in range(5000)})
    kept = []
    for member in range(5):
        store.apply_changes(store.begin_write(), [Change(str(member), 10)])
        kept.append(zrank.zcard(store.keys.recent))
    assert kept == [3999, 2998, 1997, 996, 5]


def test_the_guard_forgets_nothing_while_a_rebuild_runs(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    store.apply_changes(store.begin_write(), [Change("1", 10)])
    zrank.hincrby(store.keys.meta, "token", 601 * 10**6)
    store.apply_changes(store.begin_write(), [Change("2", 10)])
    assert set(zrank.zrange(store.keys.recent, 0, -1)) == {b"1", b"2"}


def test_refuses_what_began_before_a_rebuild_that_was_abandoned(store: Store, live: Live) -> None:
    """The rebuild forgot the tokens of what was written before it, so nothing guards against this one."""
    earlier = store.begin_write()
    store.apply_changes(store.begin_write(), [Change("1", 20)])
    store.start_rebuild("next")
    store.abandon_rebuild("next")
    assert store.apply_changes(earlier, [Change("1", 10)]) is None
    assert live()["1"] == 20


def test_of_a_member_that_is_named_twice_the_first_mention_counts(store: Store, live: Live) -> None:
    changes = [Change("1", 10), Change("1", 20), Change("2", None), Change("2", 30), Change("1", None)]
    assert store.apply_changes(store.begin_write(), changes)
    assert live() == {"1": 10, "3": 3}


def test_more_than_one_call_of_lua_takes(zrank: Redis, store: Store, live: Live) -> None:
    members = [str(number) for number in range(10_000)]
    assert store.apply_changes(store.begin_write(), [Change(member, 5) for member in members])
    assert live() == dict.fromkeys(members, 5)
    assert zrank.zcard(store.keys.recent) == 10_000
    assert store.apply_changes(store.begin_write(), [Change(member, None) for member in members])
    assert live() == {}


def test_what_came_later_keeps_no_other_back(store: Store, live: Live) -> None:
    earlier = store.begin_write()
    assert store.apply_changes(store.begin_write(), [Change("2", 20)])
    assert store.apply_changes(earlier, [Change("1", 10), Change("2", 10), Change("3", None)])
    assert live() == {"1": 10, "2": 20}
