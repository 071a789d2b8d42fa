from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.store import Change, Store
from tests.builds import TERM, identity, load_rows, shadow, start
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
    zrank.hincrby(store.keys.meta, "heartbeat", -601 * 10**6)
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
    zrank.hincrby(store.keys.meta, "heartbeat", 365 * 86400 * 10**6)
    assert start(store, "polite", polite=True)


def test_one_that_is_sent_twice_begins_once(zrank: Redis, store: Store) -> None:
    """The reply to the first call was lost. Rows may be loaded, and members written, since."""
    assert start(store, "next")
    assert load_rows(store, "next", [Change("1", 1)])
    assert apply_changes(store, begin_write(store), [Change("2", 2)])
    before = zrank.hgetall(store.keys.meta)
    assert start(store, "next")
    assert zrank.hgetall(store.keys.meta) == before
    assert zrank.exists(store.keys.recent)
    assert not zrank.sismember(store.keys.doomed, "next")


def test_one_that_is_not_polite_takes_the_place_of_another(store: Store) -> None:
    assert start(store, "running")
    assert start(store, "next")
    assert store.check_health().building == "next"


def test_versions_that_it_forgets_are_not_missed_by_the_next_write(store: Store) -> None:
    """As evicted ones are, for which the write is refused and the rebuild given up."""
    assert apply_changes(store, begin_write(store), [Change("1", 2)]) is not None  # guarded by now
    assert start(store, "next")
    assert apply_changes(store, begin_write(store), [Change("1", 3)]) is not None
    assert store.check_health().building == "next"


def test_rows_of_the_one_before_are_not_missed_by_the_next_write(store: Store) -> None:
    assert start(store, "killed")
    assert load_rows(store, "killed", [Change("1", 1)])
    assert start(store, "next")
    assert apply_changes(store, begin_write(store), [Change("1", 3)]) is not None
    assert store.check_health().building == "next"


@pytest.mark.parametrize(("server", "term"), [("before", TERM), ("", TERM - 1)])
def test_a_polite_one_waits_for_none_of_another_server_or_term(
    zrank: Redis, store: Store, server: str, term: int
) -> None:
    """Their rows may be lost."""
    assert start(store, "running")
    known = server or store.check_health().server
    zrank.hset(store.keys.meta, mapping={"server": known, "term": term})
    assert start(store, "polite", server=identity(store), polite=True)


@pytest.mark.parametrize(("server", "term"), [("before", TERM), ("", TERM - 1)])
def test_the_live_build_of_a_server_that_is_not_trusted_is_not_believed(
    zrank: Redis, store: Store, server: str, term: int
) -> None:
    """It may have lost writes, and takes new ones from now on."""
    known = server or store.check_health().server
    zrank.hset(store.keys.meta, mapping={"server": known, "term": term})
    assert start(store, "next", server=identity(store))
    assert (store.check_health().is_trusted, store.check_health().behind) == (True, "rebuild")
    assert store.swap_rebuilt("next")
    assert store.check_health().behind == ""


def test_the_live_build_of_the_trusted_server_is_believed_meanwhile(store: Store) -> None:
    assert start(store, "next")
    assert store.check_health().behind == ""


def test_the_first_one_leaves_nothing_to_be_distrusted(zrank: Redis, store: Store) -> None:
    zrank.flushall()
    assert start(store, "first")
    assert store.check_health().behind == ""
