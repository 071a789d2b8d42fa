"""Reading for so long and no longer; one state; no trace in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite

from django_zrank.transactions import reading
from tests.testapp.models import Player

SLOW = {
    "sqlite": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000000000) SELECT SUM(x) FROM c",
    "postgresql": "SELECT 1 FROM pg_sleep(30)",
    # Tables that MariaDB and MySQL have: some thousand rows, by the third power.
    "mysql": "SELECT SUM(a.ordinal_position * b.ordinal_position * c.ordinal_position)"
    " FROM information_schema.columns a, information_schema.columns b, information_schema.columns c",
}
"""Half a minute and more, unless it is stopped."""


def run(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def run_for_ever() -> None:
    while True:
        run("SELECT 1")


def limits() -> list[Any]:
    """The settings of the connection that could outlive a reading."""
    match connection.vendor:
        case "sqlite":
            return [run("PRAGMA busy_timeout"), connection.connection.in_transaction]
        case "postgresql":
            return [run("SHOW statement_timeout"), run("SHOW transaction_isolation")]
    limits = (
        "('max_statement_time', 'max_execution_time', 'tx_isolation', 'transaction_isolation', 'autocommit')"
    )
    return [run(f"SHOW SESSION VARIABLES WHERE variable_name IN {limits}")]


@pytest.mark.django_db(transaction=True)
class TestOnItsOwn:
    def test_a_slow_statement_is_stopped(self) -> None:
        before, start = limits(), monotonic()
        with pytest.raises(OperationalError), reading(connection, 0.3):
            run(SLOW[connection.vendor])
        assert 0.3 <= monotonic() - start < 20
        assert limits() == before
        assert Player.objects.count() == 0  # the connection works as before

    def test_the_time_is_for_all_statements(self) -> None:
        with pytest.raises(OperationalError), reading(connection, 0.3):
            run_for_ever()

    def test_none_begins_when_the_time_is_up(self) -> None:
        with pytest.raises(OperationalError), reading(connection, 1e-9):
            run("SELECT 1")

    def test_leaves_no_trace(self) -> None:
        before = limits()
        with reading(connection, 5):
            assert run("SELECT 1") == [(1,)]
        assert limits() == before
        assert not connection.in_atomic_block
        with pytest.raises(ZeroDivisionError), reading(connection, 5):
            raise ZeroDivisionError
        assert limits() == before
        Player.objects.create(level=1)

    def test_sees_one_state(self, elsewhere: Callable[..., Any]) -> None:
        Player.objects.create(level=1)
        with reading(connection, 10):
            assert Player.objects.count() == 1
            elsewhere(Player.objects.create, level=2)  # and does not make a writer wait
            assert Player.objects.count() == 1
        assert Player.objects.count() == 2


@pytest.mark.django_db(transaction=True)
class TestInsideATransaction:
    def test_a_slow_statement_leaves_it_whole(self, elsewhere: Callable[..., Any]) -> None:
        with transaction.atomic():
            Player.objects.create(level=1)
            before = limits()
            with pytest.raises(OperationalError), reading(connection, 0.3):
                run(SLOW[connection.vendor])
            assert limits() == before
            Player.objects.create(level=2)
        assert elsewhere(Player.objects.count) == 2

    def test_sees_what_it_has_written(self) -> None:
        with transaction.atomic():
            Player.objects.create(level=1)
            before = limits()
            with reading(connection, 5):
                assert Player.objects.count() == 1
            assert limits() == before
            assert not transaction.get_rollback()
            transaction.set_rollback(True)
        assert Player.objects.count() == 0

    def test_its_commit_hooks_stay(self) -> None:
        heard: list[int] = []
        with transaction.atomic():
            transaction.on_commit(lambda: heard.append(1))
            with reading(connection, 5):
                run("SELECT 1")
        assert heard == [1]

    def test_without_autocommit(self) -> None:
        transaction.set_autocommit(False)
        try:
            Player.objects.create(level=1)
            with reading(connection, 5):
                assert Player.objects.count() == 1
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
        assert Player.objects.count() == 0

    def test_a_broken_one_stays_broken(self) -> None:
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(transaction.TransactionManagementError), reading(connection, 5):
                run("SELECT 1")


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite makes readers wait")
def test_a_lock_is_not_waited_for_longer_than_the_deadline(tmp_path: Path) -> None:
    ours = SQLite(
        {**connections["default"].settings_dict, "NAME": tmp_path / "db", "OPTIONS": {"timeout": 20}}
    )
    with sqlite3.connect(tmp_path / "db", isolation_level=None) as theirs, ours.cursor() as cursor:
        cursor.execute("CREATE TABLE t (x)")
        theirs.execute("BEGIN EXCLUSIVE")
        start = monotonic()
        with pytest.raises(DatabaseError, match="locked"), reading(ours, 0.3):
            cursor.execute("SELECT * FROM t")
        assert 0.2 < monotonic() - start < 15
        theirs.execute("ROLLBACK")
        with reading(ours, 0.3):
            cursor.execute("SELECT * FROM t")
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (20_000,)
    theirs.close()
    ours.close()


@pytest.mark.django_db(transaction=True)
def test_another_database_looks_at_the_clock_between_two_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Oracle, which is not at hand."""
    monkeypatch.setattr(connection, "vendor", "another")
    with reading(connection, 5):
        run("SELECT 1")
    with pytest.raises(OperationalError, match=r"within 0\.05 s"), reading(connection, 0.05):
        run_for_ever()
