from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import PLAIN
from django_zrank.exceptions import IndexUnhealthy
from django_zrank.write_behind.keys import carried_key, pending_key
from django_zrank.write_behind.store import PendingStore
from tests.builds import TERM, load_rows, shadow, start

from .scripted import RULE, carried, change, pending, ruled, take


@pytest.mark.parametrize("field", ["server", "term"])
def test_a_server_that_is_not_accepted_under_the_term_takes_nothing(scores: PendingStore, field: str) -> None:
    change(scores, {"1": 5})
    scores.client.hset(scores.keys.meta, field, "7")
    with pytest.raises(IndexUnhealthy):
        take(scores)
    assert (pending(scores), scores.read_meta("taken")) == ({"1": 5}, [""])


def test_a_flush_in_flight_is_returned_until_it_is_noted(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    first = take(scores)
    assert first
    assert (first.number, first.changes) == (1, {"1": 5})
    change(scores, {"1": 2, "2": 7})
    assert take(scores) == first
    second = take(scores, 1)  # it was noted, and its process was killed before it could settle it
    assert second
    assert (second.number, second.changes) == (2, {"1": 2, "2": 7})
    assert second.version > first.version
    assert not scores.check_health().is_evicted


def test_a_flush_that_was_settled_is_never_carried_again(scores: PendingStore) -> None:
    """Nor by a database that lacks it, as after it was restored from a backup."""
    change(scores, {"1": 5})
    assert take(scores)
    assert scores.settle_flush(TERM, 1)
    change(scores, {"2": 7})
    flight = take(scores)
    assert flight
    assert (flight.number, flight.changes) == (2, {"2": 7})


def test_nothing_is_noted_where_nothing_was_ever_pending(scores: PendingStore) -> None:
    before = scores.client.hgetall(scores.keys.meta)
    assert take(scores) is None
    assert scores.client.hgetall(scores.keys.meta) == before


def test_the_contents_of_a_flush_outlive_it(scores: PendingStore) -> None:
    """Rows that were read before it are written yet."""
    change(scores, {"1": 5})
    assert take(scores)
    assert take(scores, 1) is None
    assert carried(scores, 1) == {"1": 5}


def test_a_flush_that_was_noted_is_settled_though_nothing_is_pending(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    take(scores)
    assert scores.waiting()[0] == 1
    assert take(scores, 1) is None
    assert scores.waiting()[0] == 0


def test_the_contents_of_a_flush_in_flight_that_were_evicted_are_missed(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    flight = take(scores)
    assert flight
    scores.client.delete(carried_key(scores.keys, 1))
    again = take(scores)
    assert again
    assert again.changes == {}
    assert scores.confirm_flush(TERM, again, [])
    assert scores.settle_flush(TERM, 1)
    assert scores.check_health().is_evicted


def test_a_flush_that_was_put_back_has_no_contents_to_be_missed(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    flight = take(scores)
    assert flight
    assert scores.confirm_flush(TERM, flight, ["1"])
    again = take(scores)
    assert again
    assert again.changes == {}
    assert not scores.check_health().is_evicted


def test_what_was_evicted_is_missed_whatever_is_flushed_later(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    scores.client.delete(pending_key(scores.keys))
    change(scores, {"2": 5})
    assert take(scores)
    assert scores.check_health().is_evicted


def test_nothing_is_missed_once_all_is_taken(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    assert take(scores)
    assert scores.settle_flush(TERM, 1)
    assert take(scores, 1) is None
    assert not scores.check_health().is_evicted


def test_the_age_of_what_waits_begins_anew_once_all_is_taken(scores: PendingStore) -> None:
    """It is noted together with the time of the look at the server, which must be looked at again."""
    change(scores, {"1": 5})
    assert all(scores.read_meta("waiting", "identified"))
    take(scores)
    assert scores.read_meta("waiting", "identified") == ["", ""]


def test_nothing_waits_where_what_was_put_back_is_dropped(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    flight = take(scores)
    assert flight
    scores.confirm_flush(TERM, flight, ["1"])
    assert scores.read_meta("waiting") != [""]
    scores.client.delete(pending_key(scores.keys))
    take(scores, 1)
    assert scores.read_meta("waiting") == [""]


def test_what_lies_under_the_number_of_a_flush_is_not_carried(scores: PendingStore) -> None:
    """A hash that was evicted, or lost, leaves the number to another flush."""
    members = {str(number): number for number in range(1000)}
    scores.client.hset(carried_key(scores.keys, 1), "old", 7)
    scores.client.hset(pending_key(scores.keys), mapping=members)  # type: ignore[arg-type]
    flight = take(scores)
    assert flight
    assert scores.confirm_flush(TERM, flight, [])
    assert carried(scores, 1) == flight.changes


def test_a_flush_takes_about_as_many_as_it_may(scores: PendingStore) -> None:
    members = {str(number): number for number in range(1000)}
    scores.client.hset(pending_key(scores.keys), mapping=members)  # type: ignore[arg-type]
    found: dict[str, int] = {}
    for number in range(1, 1000):
        flight = take(scores, number - 1)
        if flight is None:
            break
        assert 0 < len(flight.changes) < 300
        assert not flight.changes.keys() & found.keys()
        assert not flight.changes.keys() & pending(scores).keys()
        found |= flight.changes
    assert found == members


def test_what_a_flush_leaves_pending_waits_on_and_is_missed_if_it_is_evicted(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    since = scores.read_meta("waiting")
    members = {str(number): number for number in range(1000)}
    scores.client.hset(pending_key(scores.keys), mapping=members)  # type: ignore[arg-type]
    assert take(scores)
    assert pending(scores)
    assert scores.read_meta("waiting") == since
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


def test_many_are_taken_in_pieces(scores: PendingStore) -> None:
    """Lua's unpack takes no more than 8,000 values."""
    members = {str(number): number for number in range(20_000)}
    scores.client.hset(pending_key(scores.keys), mapping=members)  # type: ignore[arg-type]
    flight = take(scores, limit=10_000)
    assert flight
    assert len(flight.changes) >= 5_000
    assert {**flight.changes, **pending(scores)} == members
    assert carried(scores, 1) == flight.changes


def test_the_contents_of_a_few_flushes_are_kept(scores: PendingStore) -> None:
    for number in range(12):
        change(scores, {"1": 1})
        assert take(scores, number)
    kept = [number for number in range(20) if carried(scores, number)]
    assert kept == list(range(5, 13))
    assert scores.read_meta("kept") == ["5"]


def test_a_rebuild_keeps_the_contents_that_its_rows_may_lack(scores: PendingStore, zrank: Redis) -> None:
    """Its query may be older than all flushes since."""
    assert start(scores, "next")
    for number in range(12):
        change(scores, {"1": 1})
        assert take(scores, number)
    scores.noted["write_behind"] = 0
    assert load_rows(scores, "next", [("1", 1, b"")])
    assert zrank.zscore(shadow(scores, "next"), "1") == 13


def test_flushes_wait_for_a_rebuild_that_is_alive(scores: PendingStore, zrank: Redis) -> None:
    assert start(scores, "next")
    for number in range(70):
        change(scores, {"1": 1})
        taken = take(scores, number)
        if taken is None:
            break
    assert number == 64
    assert pending(scores) == {"1": 1}
    zrank.hincrby(scores.keys.meta, "heartbeat", -601 * 10**6)
    assert take(scores, number)


def test_another_rule_begins_once_nothing_is_pending_by_the_former(scores: PendingStore) -> None:
    other = ruled(scores.name, PLAIN, "max:level:0")
    change(scores, {"1": 5})
    flight = take(other)
    assert flight
    assert (flight.rule, other.read_meta("rule")) == (RULE, [RULE])
    assert take(other, 1) is None
    assert other.read_meta("rule", "kept") == ["max:level:0", "2"]
    assert carried(other, 1) == {}


def test_another_rule_does_not_begin_while_a_rebuild_runs(scores: PendingStore) -> None:
    """Rows of the rebuild are merged by the one that is noted."""
    other = ruled(scores.name, PLAIN, "max:level:0")
    change(scores, {"1": 5})
    assert take(other)
    assert start(scores, "next")
    assert take(other, 1) is None
    assert other.read_meta("rule") == [RULE]
    assert carried(other, 1) == {"1": 5}
