from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.store import Change, Store
from tests.builds import load_rows, shadow, start
from tests.writes import apply_changes, begin_write

Live = Callable[[], dict[str, float]]


def test_versions_count(store: Store) -> None:
    epoch = begin_write(store)
    versions = [apply_changes(store, epoch, [Change(str(number), 1)]).version for number in range(100)]  # type: ignore[union-attr]
    first = int(epoch.token) + 1
    assert versions == list(range(first, first + 100))


def test_refuses_members_that_were_written_since_the_token_was_taken(store: Store, live: Live) -> None:
    epoch = begin_write(store)
    assert apply_changes(store, epoch, [Change("1", 20), Change("2", None)])
    applied = apply_changes(store, epoch, [Change("1", 10), Change("2", 10), Change("3", 10)])
    assert applied
    assert applied.refused == [b"1", b"2"]
    assert live() == {"1": 20, "3": 10}


def test_the_version_of_a_write_is_a_token_for_the_next(store: Store, live: Live) -> None:
    epoch = begin_write(store)
    for score in range(5):
        applied = apply_changes(store, epoch, [Change("1", score)])
        assert applied
        assert applied.refused == []
        epoch = epoch._replace(token=str(applied.version))
    assert live()["1"] == 4


def test_what_is_refused_counts_as_no_write(store: Store, live: Live) -> None:
    epoch = begin_write(store)
    first = apply_changes(store, epoch, [Change("1", 10)])
    assert first
    assert apply_changes(store, epoch, [Change("1", 20)])
    assert apply_changes(store, epoch._replace(token=str(first.version)), [Change("1", 30)])
    assert live()["1"] == 30


def test_a_write_of_which_all_is_refused_has_a_version_that_the_server_knows(store: Store) -> None:
    """It may be a token, and what a drain notes: a server that needs a replay must not seem up to date."""
    epoch = begin_write(store)
    assert apply_changes(store, epoch, [Change("1", 10)])
    first = int(epoch.token) + 1
    refused = apply_changes(store, epoch, [Change("1", 30)])
    assert refused == (first + 1, "0", [b"1"])
    assert store.check_health().applied == str(refused.version)
    assert apply_changes(store, epoch, [Change("2", 30)]) == (first + 2, "0", [])


def test_refuses_what_a_rebuild_that_went_silent_would_take(zrank: Redis, store: Store) -> None:
    """Else who goes on from write to write would fill what it left for ever."""
    start(store, "dead")
    epoch = begin_write(store)
    assert apply_changes(store, epoch, [Change("1", 10)])
    zrank.hincrby(store.keys.meta, "heartbeat", -601 * 10**6)
    assert apply_changes(store, epoch, [Change("1", 10)]) is None
    assert begin_write(store).building == ""


def test_refuses_what_began_before_a_rebuild(store: Store, live: Live) -> None:
    epoch = begin_write(store)
    start(store, "next")
    assert not apply_changes(store, epoch, [Change("1", 10)])
    epoch = begin_write(store)
    store.swap_rebuilt("next")
    assert not apply_changes(store, epoch, [Change("1", 10)])
    assert live() == {}


def test_a_first_build_shows_nothing_before_it_is_complete(zrank: Redis, store: Store, live: Live) -> None:
    zrank.flushall()
    start(store, "first")
    assert apply_changes(store, begin_write(store), [Change("1", 10)])
    assert not zrank.exists(store.live.root)
    store.swap_rebuilt("first")
    assert live() == {"1": 10}


def age(zrank: Redis, store: Store, seconds: int = 601) -> None:
    """Let so many seconds pass since the guard last looked at the clock."""
    zrank.hincrby(store.keys.meta, "checked", -seconds * 10**6)


def write(store: Store, member: str) -> None:
    assert apply_changes(store, begin_write(store), [Change(member, 10)])


def test_refuses_what_is_older_than_the_guard_remembers(zrank: Redis, store: Store, live: Live) -> None:
    slow = begin_write(store)
    for member in "456":
        write(store, member)
        age(zrank, store)
    assert not apply_changes(store, slow, [Change("1", 10)])
    assert live()["1"] == 1


def test_the_guard_forgets_after_one_window_or_two(zrank: Redis, store: Store) -> None:
    write(store, "1")  # looks at the clock
    write(store, "2")
    age(zrank, store)
    write(store, "3")
    assert set(zrank.zrange(store.keys.recent, 0, -1)) == {b"2", b"3"}
    age(zrank, store)
    write(store, "4")
    assert zrank.zrange(store.keys.recent, 0, -1) == [b"4"]


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_was_wrong_once_keeps_the_guard_from_nothing(
    zrank: Redis, store: Store, years: int
) -> None:
    write(store, "1")
    zrank.hincrby(store.keys.meta, "checked", years * 365 * 86400 * 10**6)
    for member in "23":
        write(store, member)
        age(zrank, store)
    write(store, "4")
    assert b"1" not in zrank.zrange(store.keys.recent, 0, -1)


def test_the_guard_forgets_few_at_a_time(zrank: Redis, store: Store) -> None:
    """Versions that a drain of millions has written are not forgotten in one call: the server would stand still."""
    zrank.zadd(store.keys.recent, {f"old{number}": 1 for number in range(1000)})
    zrank.hset(store.keys.meta, mapping={"checkpoint": 1, "checked": 1})
    kept = []
    for member in range(5):
        apply_changes(store, begin_write(store), [Change(str(member), 10)])
        kept.append(zrank.zcard(store.keys.recent))
    assert kept == [750, 500, 250, 4, 5]


def test_the_guard_forgets_more_than_a_call_writes(zrank: Redis, store: Store) -> None:
    """Else versions would pile up; and few more, since they are not counted as a piece's cost."""
    zrank.zadd(store.keys.recent, {f"old{number}": 1 for number in range(1000)})
    zrank.hset(store.keys.meta, mapping={"checkpoint": 1, "checked": 1})
    apply_changes(store, begin_write(store), [Change(str(member), 10) for member in range(50)])
    assert zrank.zcard(store.keys.recent) == 1000 - 250


def test_the_guard_forgets_nothing_while_a_rebuild_runs(zrank: Redis, store: Store) -> None:
    start(store, "next")
    apply_changes(store, begin_write(store), [Change("1", 10)])
    for member in "2345":
        age(zrank, store)
        write(store, member)
    assert set(zrank.zrange(store.keys.recent, 0, -1)) == {b"1", b"2", b"3", b"4", b"5"}


def test_refuses_what_began_before_a_rebuild_that_was_abandoned(store: Store, live: Live) -> None:
    """The rebuild forgot the places of what was written before it, so nothing guards against this one."""
    earlier = begin_write(store)
    apply_changes(store, begin_write(store), [Change("1", 20)])
    start(store, "next")
    store.abandon_rebuild("next")
    assert apply_changes(store, earlier, [Change("1", 10)]) is None
    assert live()["1"] == 20


def test_more_than_one_call_of_lua_takes(zrank: Redis, store: Store, live: Live) -> None:
    members = [str(number) for number in range(10_000)]
    assert apply_changes(store, begin_write(store), [Change(member, 5) for member in members])
    assert live() == dict.fromkeys(members, 5)
    assert zrank.zcard(store.keys.recent) == 10_000
    assert apply_changes(store, begin_write(store), [Change(member, None) for member in members])
    assert live() == {}


def test_more_refused_than_one_call_of_lua_takes(store: Store) -> None:
    epoch = begin_write(store)
    members = [str(number) for number in range(10_000)]
    assert apply_changes(store, epoch, [Change(member, 5) for member in members[::2]])
    again = apply_changes(store, epoch, [Change(member, 6) for member in [*members, *members[:10]]])
    assert again
    assert again.refused == [member.encode() for member in members[::2]]


# What was evicted


FACETED = Layout(memberships=True)


def write_facets(store: Store, *members: str) -> None:
    changes = [Change(member, 10, b"region:x") for member in members]
    assert apply_changes(store, begin_write(store), changes)


def test_without_the_versions_of_members_no_older_token_is_judged(
    zrank: Redis, store: Store, live: Live
) -> None:
    earlier = begin_write(store)
    write(store, "1")
    zrank.delete(store.keys.recent)
    assert apply_changes(store, earlier, [Change("1", 7)]) is None
    assert apply_changes(store, earlier, [Change("1", 7)]) is None
    assert live()["1"] == 10
    assert not zrank.sismember(store.keys.doomed, "")
    write(store, "2")
    assert live()["2"] == 10


def test_without_the_versions_of_members_no_row_of_a_rebuild_is_judged(zrank: Redis, store: Store) -> None:
    start(store, "next")
    write(store, "1")
    zrank.delete(store.keys.recent)
    assert apply_changes(store, begin_write(store), [Change("1", 7)]) is None
    assert begin_write(store).building == ""
    assert zrank.sismember(store.keys.doomed, "next")
    write(store, "1")


def test_a_first_write_has_no_versions_to_miss(zrank: Redis, store: Store) -> None:
    start(store, "next")
    assert not zrank.exists(store.keys.recent)
    write(store, "1")


def test_a_rebuild_whose_rows_were_evicted_is_given_up(zrank: Redis, store: Store, live: Live) -> None:
    start(store, "next")
    write(store, "1")
    zrank.delete(shadow(store, "next"))
    assert apply_changes(store, begin_write(store), [Change("2", 10)]) is None
    assert begin_write(store).building == ""
    assert zrank.sismember(store.keys.doomed, "next")
    write(store, "2")
    assert live()["2"] == 10


@pytest.mark.parametrize("member", ["1", "7"])
def test_a_live_build_that_was_evicted_is_not_trusted_after_a_write(
    zrank: Redis, store: Store, member: str
) -> None:
    """Its key is there again."""
    write(store, "1")
    zrank.delete(store.live.root)
    write(store, member)
    assert not store.check_health().is_evicted
    assert store.check_health().behind == "rebuild"


def test_a_ranking_of_a_facet_that_was_evicted_is_missed_by_a_write(zrank: Redis, store: Store) -> None:
    store = Store(store.name, FACETED)
    write_facets(store, "1", "2")
    assert store.check_health().behind == ""
    zrank.delete(store.live.ranking("region:x"))
    write_facets(store, "2")
    assert store.check_health().behind == "rebuild"


def test_a_rebuild_with_such_a_ranking_is_given_up(zrank: Redis, store: Store) -> None:
    store = Store(store.name, FACETED)
    start(store, "next")
    write_facets(store, "1", "2")
    zrank.delete(store.keys.at("next").ranking("region:x"))
    write_facets(store, "2")
    assert begin_write(store).building == ""
    assert zrank.sismember(store.keys.doomed, "next")


def test_a_note_that_the_index_is_behind_outlives_writes(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "behind", "7")
    write(store, "1")
    assert store.check_health().behind == "7"


@pytest.mark.part("remember")
def test_who_leaves_forgets_whom_it_was_shown(zrank: Redis, store: Store) -> None:
    for member in "12":
        zrank.zadd(store.keys.beside("remembered", member), {"3": 7})
    assert apply_changes(store, begin_write(store), [Change("1", None), Change("2", 5)])
    assert [zrank.exists(store.keys.beside("remembered", one)) for one in "12"] == [0, 1]


def test_a_rebuild_gets_what_is_written_and_no_older_row(zrank: Redis, store: Store) -> None:
    start(store, "next")
    assert apply_changes(store, begin_write(store), [Change("1", 10), Change("2", None)])
    assert load_rows(store, "next", [Change("1", 1), Change("2", 2), Change("3", 3)])
    assert zrank.zrange(shadow(store, "next"), 0, -1, withscores=True) == [(b"3", 3), (b"1", 10)]
