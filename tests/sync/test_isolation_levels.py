"""Databases whose transactions are isolated more strictly, or less, than this app's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
from django.db import connection, connections

from django_zrank.models import Mark
from django_zrank.sync.drain import drain
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ten_players")]

INDEX = PlayerAscending.instance()


@contextmanager
def draining(watch: Callable[[str], Any]) -> Iterator[None]:
    """A drain in a thread, whose statements are given to ``watch`` before they are executed."""
    failures: list[BaseException] = []

    def execute(run: Callable[..., Any], sql: str, *args: Any) -> Any:
        watch(sql)
        return run(sql, *args)

    def work() -> None:
        try:
            with connection.execute_wrapper(execute):
                assert drain(INDEX) == 5
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)
        finally:
            connection.close()

    thread = Thread(target=work)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()
    assert not failures


def change_five() -> None:
    first = list(Player.objects.order_by("pk").values_list("pk", flat=True)[:5])
    assert Player.objects.filter(pk__in=first).update(level=50) == 5


@pytest.mark.skipif(connection.vendor != "mysql", reason="InnoDB's gap locks")
@pytest.mark.parametrize("isolated", ["REPEATABLE_READ"], indirect=True)
def test_a_late_drain_locks_no_gap(isolated: None) -> None:
    """Another one has processed its newest marks: a DELETE of them would lock the end of the table."""
    change_five()
    Mark.objects.exclude(index=INDEX.name).delete()
    other = connections.create_connection("default")
    other.inc_thread_sharing()
    paused, go = Event(), Event()

    purged = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"
    if not connection.mysql_is_mariadb:
        purged = (
            "SELECT name, count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
        )

    def watch(sql: str) -> None:
        if sql.startswith("DELETE m FROM"):
            with other.cursor() as cursor:
                cursor.execute("SELECT max(id) FROM zrank_mark WHERE `index` = 'ascending'")
                cursor.execute("DELETE FROM zrank_mark WHERE id = %s", cursor.fetchone())
                # Until InnoDB has purged the row, only the row would be locked.
                until = monotonic() + 2
                cursor.execute(purged)
                while int(cursor.fetchone()[1]) and monotonic() < until:
                    cursor.execute(purged)
        elif sql.startswith("INSERT INTO `zrank_batch`"):
            paused.set()
            assert go.wait(30)

    try:
        with draining(watch):
            assert paused.wait(30)
            with connection.cursor() as cursor:
                cursor.execute("SET innodb_lock_wait_timeout = 1")
            try:
                player = Player.objects.order_by("pk")[7]
                player.level = 60
                player.save()
            finally:
                go.set()
    finally:
        other.close()
    drain(INDEX)
    assert_mirrors(PlayerAscending)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's serializable transactions")
@pytest.mark.parametrize("isolated", ["SERIALIZABLE"], indirect=True)
def test_a_drain_makes_no_serializable_transaction_fail(isolated: None) -> None:
    """A predicate lock of one of its reads can: with it, a writer's transaction becomes dangerous."""
    change_five()
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)  # a transaction beside it, without which no lock outlasts the drain's
        with other.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM testapp_club")
            with connection.cursor() as own:
                own.execute("SELECT pg_backend_pid()")
                (pid,) = own.fetchone()
            drain(INDEX)
            cursor.execute(
                "SELECT relation::regclass::text FROM pg_locks WHERE mode = 'SIReadLock' AND pid = %s", [pid]
            )
            assert cursor.fetchall() == []
    finally:
        other.close()
    assert_mirrors(PlayerAscending)
