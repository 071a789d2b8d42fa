from __future__ import annotations

from typing import Any

import pytest

from django_zrank.codec.layout import PLAIN
from django_zrank.store import Health
from django_zrank.write_behind.keys import carried_key, pending_key
from django_zrank.write_behind.store import PendingStore
from tests.builds import start

from .scripted import RULE, carried, change, pending, ruled, take


@pytest.fixture
def found(scores: PendingStore) -> Health:
    """A flush of the members 1 and 2 is in flight, and more is pending of the second, and of the third."""
    change(scores, {"1": 5, "2": 7})
    take(scores)
    change(scores, {"2": 1, "3": 2})
    return scores.check_health()


def reconcile(store: PendingStore, found: Health, flushed: int = 0, **how: Any) -> bool:
    how = {"committed": False, "everything": False, "members": (), **how}
    return store.reconcile_pending(found, flushed, **how)


@pytest.mark.parametrize("field", ["server", "term", "taken"])
def test_a_server_that_has_changed_since_it_was_found_is_left_alone(
    scores: PendingStore, found: Health, field: str
) -> None:
    before = scores.client.hgetall(scores.keys.meta)
    assert not reconcile(scores, found._replace(**{field: "7"}), everything=True)
    assert scores.client.hgetall(scores.keys.meta) == before
    assert (pending(scores), carried(scores, 1)) == ({"2": 1, "3": 2}, {"1": 5, "2": 7})


def test_a_flush_in_flight_that_the_column_lacks_is_pending_again(
    scores: PendingStore, found: Health
) -> None:
    reconcile(scores, found)
    assert (pending(scores), carried(scores, 1)) == ({"1": 5, "2": 8, "3": 2}, {})
    assert not scores.check_health().is_evicted
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


def test_a_flush_in_flight_that_the_column_has_is_dropped(scores: PendingStore, found: Health) -> None:
    reconcile(scores, found, 1, committed=True)
    assert (pending(scores), carried(scores, 1)) == ({"2": 1, "3": 2}, {})


def test_those_that_were_written_are_not_pending_again(scores: PendingStore, found: Health) -> None:
    reconcile(scores, found, written=["2"])
    assert pending(scores) == {"1": 5, "2": 1, "3": 2}


def test_those_that_later_flushes_have_written_are_dropped(scores: PendingStore, found: Health) -> None:
    reconcile(scores, found, written=["1"], members=["2"])
    assert pending(scores) == {"3": 2}


def test_everything_is_dropped(scores: PendingStore, found: Health) -> None:
    reconcile(scores, found, 9, everything=True)
    assert (pending(scores), carried(scores, 1)) == ({}, {})
    health = scores.check_health()
    assert not health.is_evicted
    assert health.behind == "rebuild"  # it contains what was dropped


def test_where_nothing_was_built_nothing_is_noted(scores: PendingStore, found: Health) -> None:
    scores.client.hdel(scores.keys.meta, "build")
    reconcile(scores, found, everything=True)
    assert scores.read_meta("behind") == [""]


def test_flushes_are_numbered_from_what_the_database_has(scores: PendingStore, found: Health) -> None:
    """The server may have a lower number than that, or a higher one."""
    reconcile(scores, found, 9)
    noted = scores.read_meta("taken", "settled", "kept", "took", "cursor", "identified", "carried")
    assert noted == ["9", "9", "10", "", "", "", ""]
    flight = take(scores, 9)
    assert flight
    assert flight.number == 10


def test_the_contents_of_former_flushes_are_forgotten(scores: PendingStore, found: Health) -> None:
    take(scores, 1)
    reconcile(scores, scores.check_health(), 2, committed=True)
    assert carried(scores, 1) == carried(scores, 2) == {}


def test_a_flush_that_is_settled_is_not_pending_again(scores: PendingStore, found: Health) -> None:
    assert scores.settle_flush(int(found.term), 1)
    reconcile(scores, found, 1)
    assert pending(scores) == {"2": 1, "3": 2}


def test_many_are_pending_again(scores: PendingStore, found: Health) -> None:
    """Lua's unpack takes no more than 8,000 values."""
    members = {str(number): number + 1 for number in range(9000)}
    scores.client.hset(carried_key(scores.keys, 1), mapping=members)  # type: ignore[arg-type]
    reconcile(scores, found)
    assert pending(scores) == members | {"2": 3 + 1, "3": 4 + 2}


@pytest.mark.parametrize("evicted", ["pending", "carried", "before"])
def test_what_was_evicted_is_missed_afterwards(scores: PendingStore, found: Health, evicted: str) -> None:
    keys = scores.keys
    scores.client.delete(carried_key(keys, 1) if evicted == "carried" else pending_key(keys))
    if evicted == "before":
        change(scores, {"3": 2})
    reconcile(scores, found)
    assert scores.check_health().is_evicted


def test_what_was_evicted_is_missed_though_nothing_is_pending(scores: PendingStore, found: Health) -> None:
    scores.client.delete(pending_key(scores.keys))
    reconcile(scores, found, 1, committed=True)
    assert pending(scores) == {}
    assert scores.check_health().is_evicted


def test_a_flush_that_the_column_has_is_not_missed(scores: PendingStore, found: Health) -> None:
    scores.client.delete(carried_key(scores.keys, 1))
    reconcile(scores, found, 1, committed=True)
    assert not scores.check_health().is_evicted


def test_a_flush_that_was_put_back_is_not_missed(scores: PendingStore, found: Health) -> None:
    flight = take(scores)
    assert flight
    assert scores.confirm_flush(int(found.term), flight, ["1", "2"])
    reconcile(scores, found)
    assert pending(scores) == {"1": 5, "2": 8, "3": 2}
    assert not scores.check_health().is_evicted


def test_changes_are_merged_by_the_rule_that_is_noted(scores: PendingStore, found: Health) -> None:
    """Another release reconciles."""
    reconcile(ruled(scores.name, PLAIN, "max:level:0"), found)
    assert pending(scores)["2"] == 8
    assert scores.read_meta("rule", "held") == [RULE, RULE]


def test_nothing_is_noted_of_an_index_that_is_not_there(scores: PendingStore) -> None:
    scores.client.flushall()
    reconcile(scores, scores.check_health())
    assert not scores.client.exists(scores.keys.meta)


def test_a_build_that_is_the_first_counts(scores: PendingStore) -> None:
    scores.client.flushall()
    health = scores.check_health()
    assert start(scores, "first")
    reconcile(scores, health._replace(term=scores.check_health().term), 9)
    assert scores.read_meta("taken") == ["9"]
