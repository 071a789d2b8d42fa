"""Reads of a database within a time limit and, if the database supports it, from one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, Final

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["Deadline", "reading"]

_OPCODES: Final = 10_000
"""Instructions of SQLite between two looks at the clock: less than a millisecond."""


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds
        self._seconds = seconds

    def left(self) -> float:
        """The seconds left. Raises ``OperationalError`` if there are none."""
        left = self._end - monotonic()
        if left <= 0:
            raise OperationalError(f"no answer within {self._seconds:g} s")
        return left

    def milliseconds(self) -> int:
        """Return the milliseconds left, at least one: to databases, 0 means no limit."""
        return int(1000 * self.left()) + 1

    def has_passed(self) -> bool:
        return monotonic() >= self._end


@contextmanager
def reading(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Raise ``OperationalError`` if the statements in this block take more than ``seconds`` in all.

    They read one snapshot of the database. In a caller's transaction they leave no trace; if that is READ COMMITTED
    (Django's default), each statement reads a snapshot of its own.

    The database itself enforces the limit, which doesn't cover a network that hangs. Databases other than SQLite,
    PostgreSQL, MariaDB and MySQL check the clock only between two statements.
    """
    deadline = Deadline(seconds)
    block = _on_sqlite if connection.vendor == "sqlite" else _in_transaction
    with block(connection, deadline):
        yield


@contextmanager
def _on_sqlite(connection: BaseDatabaseWrapper, deadline: Deadline) -> Iterator[None]:
    connection.ensure_connection()
    driver: Any = connection.connection
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        patience = cursor.fetchone()[0]
        cursor.execute(f"PRAGMA busy_timeout = {min(patience, deadline.milliseconds())}")
        # SQLite doesn't return the handler that was set before, so that one isn't restored.
        driver.set_progress_handler(deadline.has_passed, _OPCODES)
        try:
            # Outside a transaction this begins a deferred one. atomic() might be configured to take the write lock.
            cursor.execute("SAVEPOINT zrank_reading")
            try:
                with connection.execute_wrapper(partial(_between_statements, deadline)):
                    yield
            finally:
                driver.set_progress_handler(None, 0)
                cursor.execute("RELEASE zrank_reading")
        finally:
            driver.set_progress_handler(None, 0)
            cursor.execute(f"PRAGMA busy_timeout = {patience}")


@contextmanager
def _in_transaction(connection: BaseDatabaseWrapper, deadline: Deadline) -> Iterator[None]:
    using = connection.alias
    is_ours = not connection.in_atomic_block and connection.get_autocommit()
    limit = partial(_LIMITS.get(connection.vendor, _between_statements), deadline)
    with transaction.atomic(using):
        if is_ours and connection.vendor in _LIMITS:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with connection.execute_wrapper(limit):
            yield
        # Nothing was written. In a caller's transaction this rolls back to a savepoint, and undoes SET LOCAL.
        transaction.set_rollback(True, using)


def _between_statements(deadline: Deadline, execute: Any, sql: str, *rest: Any) -> Any:
    deadline.left()
    return execute(sql, *rest)


def _on_postgresql(deadline: Deadline, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    context["cursor"].cursor.execute(f"SET LOCAL statement_timeout = {deadline.milliseconds()}")
    return execute(sql, params, many, context)


def _on_mysql(deadline: Deadline, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    if context["connection"].mysql_is_mariadb:
        sql = f"SET STATEMENT max_statement_time={deadline.milliseconds() / 1000:.3f} FOR {sql}"
    else:
        hint = f"SELECT /*+ MAX_EXECUTION_TIME({deadline.milliseconds()}) */"
        sql = sql.replace("SELECT", hint, 1)
    return execute(sql, params, many, context)


_LIMITS: Final[dict[str, Callable[..., Any]]] = {"postgresql": _on_postgresql, "mysql": _on_mysql}
