"""Changes that Redis has evicted, when a rebuild begins."""

from __future__ import annotations

from django_zrank.write_behind.keys import carried_key, pending_key
from django_zrank.write_behind.store import PendingStore
from tests.builds import TERM, start

from .scripted import RULE, change, take


def evicted_after_a_swap(scores: PendingStore) -> bool:
    """True if the index counts as evicted once it is built again."""
    assert start(scores, "next")
    assert scores.check_health().behind == "rebuild"  # the live one lacks what was evicted
    assert scores.swap_rebuilt("next")
    assert scores.check_health().behind == ""
    return scores.check_health().is_evicted


def test_changes_that_were_evicted_are_in_no_row(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    scores.client.delete(pending_key(scores.keys))
    assert not evicted_after_a_swap(scores)
    assert scores.read_meta("held") == [""]


def test_changes_since_those_that_were_evicted_are_missed_if_they_are(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    scores.client.delete(pending_key(scores.keys))
    change(scores, {"2": 5})
    assert scores.check_health().is_evicted
    assert not evicted_after_a_swap(scores)
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


def test_a_flush_in_flight_that_was_evicted_is_in_no_row(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    assert take(scores)
    scores.client.delete(carried_key(scores.keys, 1))
    assert scores.check_health().is_evicted
    assert not evicted_after_a_swap(scores)


def test_what_is_pending_and_in_flight_is_not_missed(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    assert take(scores)
    change(scores, {"1": 5})
    assert start(scores, "next")
    assert scores.check_health().behind == ""
    assert scores.read_meta("held", "carried") == [RULE, "1"]


def test_a_flush_that_was_settled_may_be_forgotten(scores: PendingStore) -> None:
    change(scores, {"1": 5})
    assert take(scores)
    assert scores.settle_flush(TERM, 1)
    scores.client.delete(carried_key(scores.keys, 1))
    assert start(scores, "next")
    assert scores.check_health().behind == ""
    assert scores.read_meta("carried") == [""]
