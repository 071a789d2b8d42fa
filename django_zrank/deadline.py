"""Reads of a database within a time limit and, if the database supports it, from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any, Final

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["reading"]

_OPCODES: Final = 10_000
"""Instructions of SQLite between two looks at the clock: less than a millisecond."""


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds
        self._seconds = seconds

    def has_passed(self) -> bool:
        return monotonic() >= self._end

    def milliseconds(self) -> int:
        """The milliseconds left, at least one: to databases, 0 means no limit. Raises ``OperationalError`` if there are
        none."""
        left = self._end - monotonic()
        if left <= 0:
            raise OperationalError(f"no answer within {self._seconds:g} s")
        return int(1000 * left) + 1

    def limit(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Run a statement with the time that is left, as a wrapper of Django's."""
        milliseconds, connection = self.milliseconds(), context["connection"]
        if connection.vendor == "postgresql":
            context["cursor"].cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")
        elif connection.vendor == "mysql" and connection.mysql_is_mariadb:
            sql = f"SET STATEMENT max_statement_time={milliseconds / 1000:.3f} FOR {sql}"
        elif connection.vendor == "mysql":
            sql = sql.replace("SELECT", f"SELECT /*+ MAX_EXECUTION_TIME({milliseconds}) */", 1)
        return execute(sql, params, many, context)


@contextmanager
def reading(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Raise ``OperationalError`` if the statements in this block take more than ``seconds`` in all.

    They read one snapshot of the database. In a caller's transaction they leave no trace; if that is READ COMMITTED
    (Django's default), each statement reads a snapshot of its own.

    The database itself enforces the limit, which doesn't cover a network that hangs. Databases other than SQLite,
    PostgreSQL, MariaDB and MySQL check the clock only between two statements.
    """
    deadline = Deadline(seconds)
    is_sqlite = connection.vendor == "sqlite"
    block = _on_sqlite(connection, deadline) if is_sqlite else _in_transaction(connection)
    with block, connection.execute_wrapper(deadline.limit):
        yield


@contextmanager
def _on_sqlite(connection: BaseDatabaseWrapper, deadline: Deadline) -> Iterator[None]:
    connection.ensure_connection()
    driver: Any = connection.connection
    with connection.cursor() as cursor, ExitStack() as undo:
        cursor.execute("PRAGMA busy_timeout")
        patience = cursor.fetchone()[0]
        undo.callback(cursor.execute, f"PRAGMA busy_timeout = {patience}")
        cursor.execute(f"PRAGMA busy_timeout = {min(patience, deadline.milliseconds())}")
        # Outside a transaction this begins a deferred one. atomic() might be configured to take the write lock.
        cursor.execute("SAVEPOINT zrank_reading")
        undo.callback(cursor.execute, "RELEASE zrank_reading")
        # SQLite doesn't return the handler that was set before, so that one isn't restored.
        undo.callback(driver.set_progress_handler, None, 0)
        driver.set_progress_handler(deadline.has_passed, _OPCODES)
        yield


@contextmanager
def _in_transaction(connection: BaseDatabaseWrapper) -> Iterator[None]:
    is_ours = not connection.in_atomic_block and connection.get_autocommit()
    with transaction.atomic(connection.alias):
        if is_ours and connection.vendor in ("postgresql", "mysql"):
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield
        # Nothing was written. In a caller's transaction this rolls back to a savepoint, and undoes SET LOCAL.
        transaction.set_rollback(True, connection.alias)
