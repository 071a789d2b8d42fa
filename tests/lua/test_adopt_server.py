from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import IndexUnhealthy
from django_zrank.store import Change, Store
from tests.builds import TERM, identity, load_rows, shadow, start
from tests.writes import apply_changes, begin_write


@pytest.fixture(autouse=True)
def restarted(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", "the server before")


def test_until_then_nothing_is_written(store: Store) -> None:
    with pytest.raises(IndexUnhealthy):
        begin_write(store)


def test_afterwards_it_is_written_to_and_not_yet_believed(store: Store) -> None:
    health = store.check_health()
    assert store.adopt_server(health, TERM + 1, behind=True)
    assert apply_changes(store, begin_write(store), [Change("1", 10)])
    health = store.check_health()
    assert health.is_trusted
    assert health.term == health.behind == str(TERM + 1)


def test_where_nothing_was_lost_it_is_believed_at_once(store: Store) -> None:
    assert store.adopt_server(store.check_health(), TERM + 1, behind=False)
    assert store.check_health().behind == ""


def test_what_was_evicted_is_not_made_good_by_marks(zrank: Redis, store: Store) -> None:
    """A push may find that a key is gone after the server was looked at."""
    health = store.check_health()
    zrank.hset(store.keys.meta, "behind", "rebuild")
    assert store.adopt_server(health, TERM + 1, behind=True)
    assert store.check_health().behind == "rebuild"


def test_a_rebuild_that_may_have_lost_rows_goes(zrank: Redis, store: Store) -> None:
    start(store, "next")
    load_rows(store, "next", [Change("1", 1)])
    zrank.hset(store.keys.meta, "server", "the server before")
    assert not load_rows(store, "next", [Change("2", 2)])
    assert not store.swap_rebuilt("next")
    health = store.check_health()
    assert store.adopt_server(health, TERM + 1, behind=True)
    store.unlink_doomed()
    assert not zrank.exists(shadow(store, "next"))
    assert store.check_health().building == ""


def test_a_server_that_holds_something_else_by_now(store: Store) -> None:
    health = store.check_health()
    for field in ("build", "traces", "term", "server"):
        assert not store.adopt_server(health._replace(**{field: "7"}), TERM + 1, behind=True)
    assert not store.check_health().is_trusted


def test_a_write_that_began_before_the_restart_is_refused(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", identity(store))
    epoch = begin_write(store)
    zrank.hset(store.keys.meta, "server", "the server before")
    assert apply_changes(store, epoch, [Change("1", 10)]) is None


def test_a_write_of_an_earlier_term_is_refused(zrank: Redis, store: Store) -> None:
    zrank.hset(store.keys.meta, "server", identity(store))
    epoch = begin_write(store)
    assert store.adopt_server(store.check_health(), TERM + 1, behind=False)
    assert apply_changes(store, epoch, [Change("1", 10)]) is None
    assert apply_changes(store, begin_write(store), [Change("1", 10)])
