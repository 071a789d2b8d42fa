from __future__ import annotations

from redis import Redis

from django_zrank.store import Change, Store
from tests.builds import TERM, load_rows, shadow, start
from tests.writes import apply_changes, begin_write


def test_leaves_the_live_index_alone_and_clears_what_was_left(zrank: Redis, store: Store) -> None:
    start(store, "killed")
    load_rows(store, "killed", [Change("1", 1)])
    apply_changes(store, begin_write(store), [Change("7", 7)])
    start(store, "next")
    store.unlink_doomed()
    assert not zrank.exists(shadow(store, "killed"), shadow(store, "next"), store.keys.recent)
    assert zrank.zcard(store.live.root) == 4


def test_its_token_lies_above_every_earlier_one(zrank: Redis, store: Store) -> None:
    earlier = int(begin_write(store).token)
    start(store, "next")
    assert earlier < int(zrank.hget(store.keys.meta, "started")) == int(begin_write(store).token)


def test_a_polite_one_waits_for_a_rebuild_that_is_alive(zrank: Redis, store: Store) -> None:
    assert start(store, "running")
    assert not start(store, "polite", polite=True)
    assert load_rows(store, "running", [Change("1", 1)])
    zrank.hincrby(store.keys.meta, "seen", -601 * 10**6)
    assert start(store, "polite", polite=True)
    assert not load_rows(store, "running", [Change("1", 1)])


def test_one_of_an_earlier_term_does_not_begin(store: Store) -> None:
    assert not start(store, "late", term=TERM - 1)
    assert store.check_health().building == ""


def test_one_for_another_server_does_not_begin(store: Store) -> None:
    assert not start(store, "elsewhere", server="another")
    assert store.check_health().building == ""


def test_a_clock_that_was_ahead_keeps_nobody_from_beginning(zrank: Redis, store: Store) -> None:
    assert start(store, "died")
    zrank.hincrby(store.keys.meta, "seen", 365 * 86400 * 10**6)
    assert start(store, "polite", polite=True)
