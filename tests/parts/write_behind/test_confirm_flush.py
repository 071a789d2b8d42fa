"""With the script that settles it, and the one that drops the change of a member."""

from __future__ import annotations

from typing import Any

import pytest

from django_zrank.codec.layout import PLAIN
from django_zrank.write_behind.keys import carried_key, pending_key
from django_zrank.write_behind.store import DROP_PENDING, Flight, PendingStore
from tests.builds import TERM

from .scripted import carried, change, pending, ruled, take


@pytest.fixture
def flight(scores: PendingStore) -> Flight:
    """A flush of the members 1 and 2 is in flight, and more is pending of the first."""
    change(scores, {"1": 5, "2": 7})
    flight = take(scores)
    assert flight
    change(scores, {"1": 1})
    return flight


def state(store: PendingStore) -> Any:
    return store.client.hgetall(store.keys.meta), pending(store), carried(store, 1)


@pytest.mark.parametrize("field", ["server", "term", "taken"])
def test_another_server_term_or_flush_is_neither_confirmed_nor_settled(
    scores: PendingStore, flight: Flight, field: str
) -> None:
    scores.client.hset(scores.keys.meta, field, "7")
    before = state(scores)
    assert not scores.confirm_flush(TERM, flight, ["2"])
    assert not scores.settle_flush(TERM, flight.number)
    assert state(scores) == before


def test_a_flush_is_settled_once_and_not_confirmed_after_that(scores: PendingStore, flight: Flight) -> None:
    assert scores.settle_flush(TERM, flight.number)
    before = state(scores)
    assert scores.read_meta("settled") == ["1"]
    assert not scores.confirm_flush(TERM, flight, ["2"])
    assert not scores.settle_flush(TERM, flight.number)
    assert state(scores) == before


def test_a_flush_that_carries_less_by_now_is_not_confirmed(scores: PendingStore, flight: Flight) -> None:
    assert scores.confirm_flush(TERM, flight, ["2"])
    before = state(scores)
    assert not scores.confirm_flush(TERM, flight, ["1"])
    assert not scores.confirm_flush(TERM, flight, [])
    assert state(scores) == before


def test_what_was_not_written_is_put_back(scores: PendingStore, flight: Flight) -> None:
    assert scores.confirm_flush(TERM, flight, ["1"])
    assert (pending(scores), carried(scores, 1)) == ({"1": 6}, {"2": 7})
    assert not scores.check_health().is_evicted


@pytest.mark.parametrize(
    ("operation", "first", "later", "merged"),
    [
        ("sum", 5, 2, 7),
        ("sum", 2**53, 1, 2**53 + 1),
        ("max", 50, 40, 50),
        ("max", 40, 50, 50),
        ("min", 50, 40, 40),
        ("min", 40, 50, 40),
        ("last", 50, 40, 40),
        ("last", 40, 50, 50),
    ],
)
def test_what_is_put_back_comes_before_later_changes(
    store: PendingStore, operation: str, first: int, later: int, merged: int
) -> None:
    scores = ruled(store.name, PLAIN, f"{operation}:level:0")
    change(scores, {"1": -1 if operation == "min" else 10, "2": -5 if operation == "min" else 20})
    flight = take(scores)
    assert flight
    scores.client.hset(carried_key(scores.keys, 1), "1", first)
    scores.client.hset(pending_key(scores.keys), "1", later)
    assert scores.confirm_flush(TERM, flight, ["1", "2"])
    assert pending(scores) == {"1": merged, "2": flight.changes["2"]}


def test_nothing_is_put_back_where_all_was_written(scores: PendingStore, flight: Flight) -> None:
    scores.client.delete(pending_key(scores.keys))
    scores.client.hdel(scores.keys.meta, "held", "waiting")
    assert scores.confirm_flush(TERM, flight, [])
    assert (pending(scores), carried(scores, 1)) == ({}, flight.changes)
    assert scores.read_meta("held", "waiting", "carried") == ["", "", "1"]


def test_what_was_put_back_waits_and_is_missed_if_it_is_evicted(scores: PendingStore) -> None:
    change(scores, {"1": 5, "2": 7})
    flight = take(scores)
    assert flight
    assert scores.read_meta("held", "waiting") == ["", ""]
    assert scores.confirm_flush(TERM, flight, ["1"])
    assert scores.waiting()[0] == 2
    assert all(scores.read_meta("held", "waiting"))
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


def test_what_a_flush_still_carries_is_missed_if_it_is_evicted(scores: PendingStore, flight: Flight) -> None:
    assert scores.confirm_flush(TERM, flight, ["1"])
    scores.client.delete(carried_key(scores.keys, 1))
    assert scores.check_health().is_evicted


def test_many_are_put_back_in_pieces(scores: PendingStore) -> None:
    """Lua's unpack takes no more than 8,000 values."""
    change(scores, {"1": 1})
    members = {str(number): number for number in range(9000)}
    scores.client.hset(pending_key(scores.keys), mapping=members)  # type: ignore[arg-type]
    flight = take(scores, limit=10_000)
    assert flight
    assert scores.confirm_flush(TERM, flight, [str(number) for number in range(8500)])
    assert pending(scores) == {str(number): number for number in range(8500)}
    assert carried(scores, 1) == {str(number): number for number in range(8500, 9000)}


# One member


def drop(store: PendingStore, member: str, flush: int | None = None) -> int:
    key = pending_key(store.keys) if flush is None else carried_key(store.keys, flush)
    found: int = store.call(DROP_PENDING, (store.keys.meta, key), (member, "" if flush is None else flush))
    return found


def test_one_that_is_dropped_leaves_the_others_which_are_missed_if_they_are_evicted(
    scores: PendingStore,
) -> None:
    change(scores, {"1": 5, "2": 7})
    assert (drop(scores, "1"), drop(scores, "1")) == (1, 0)
    assert pending(scores) == {"2": 7}
    scores.client.delete(pending_key(scores.keys))
    assert drop(scores, "2") == 0
    assert scores.check_health().is_evicted


def test_the_last_one_that_is_dropped_is_not_missed(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    assert drop(scores, "1") == 1
    assert not scores.check_health().is_evicted


def test_those_that_were_evicted_are_missed_though_the_last_one_is_dropped(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    scores.client.delete(pending_key(scores.keys))
    change(scores, {"2": 7})
    assert drop(scores, "2") == 1
    assert scores.check_health().is_evicted


def test_one_of_a_flush_that_is_dropped_leaves_the_others(scores: PendingStore, flight: Flight) -> None:
    assert drop(scores, "1", 1) == 1
    assert scores.read_meta("carried") == ["1"]
    assert drop(scores, "2", 1) == 1
    assert not scores.check_health().is_evicted
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


def test_the_last_one_of_an_older_flush_leaves_the_note_of_that_in_flight(
    scores: PendingStore, flight: Flight
) -> None:
    take(scores, 1)
    assert drop(scores, "1", 1) == drop(scores, "2", 1) == 1
    scores.client.delete(carried_key(scores.keys, 2))
    assert scores.check_health().is_evicted
