"""Transactions: short ones, which don't wait for locks that a stopped process may hold; and those that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import Busy

__all__ = [
    "PATIENCE",
    "belongs_to",
    "briefly",
    "is_delay",
    "is_open",
    "refuse_transaction",
    "require_writable",
    "retry",
    "without_waiting",
]

PATIENCE: Final = 5.0
"""Seconds for which a watcher retries while a row is locked."""

_PAUSE: Final = 0.05

_READ_ONLY: Final = {"postgresql": "SELECT pg_is_in_recovery()", "mysql": "SELECT @@global.read_only"}

Answer = TypeVar("Answer")


def briefly(using: str, work: Callable[[], Answer], *, patience: float = PATIENCE) -> Answer:
    """Return the result of ``work``, run in a transaction of its own, and retried as by :func:`retry`."""
    is_own = not connections[using].in_atomic_block  # not inside that of a test

    def attempt() -> Answer:
        with transaction.atomic(using):
            _begin(using, is_own=is_own)
            return work()

    return retry(attempt, patience=patience)


def retry(work: Callable[[], Answer], *, patience: float = PATIENCE) -> Answer:
    """Return the result of ``work``. After a lock, a deadlock or a serialization failure it is tried again, for
    ``patience`` seconds; then :exc:`Busy` is raised."""
    deadline = monotonic() + patience
    while True:
        try:
            return work()
        except OperationalError as error:
            if not _is_passing(error):
                raise
            if monotonic() >= deadline:
                raise Busy(str(error).strip()) from error
        sleep(_PAUSE)


@contextmanager
def without_waiting(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Don't wait for SQLite's only writer in this block. Other databases lock rows."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        before = cursor.fetchone()[0]
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")


def _begin(using: str, *, is_own: bool) -> None:
    """On PostgreSQL, limit what each statement waits for, table locks included, and let it see what was committed
    before it.

    At a stricter isolation level, the snapshot would be taken before a statement waits for a lock, and miss what its
    holder commits. MySQL takes it with the first plain read, which comes after the lock.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    level = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; " if is_own else ""
    limits = "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'"
    with connection.cursor() as cursor:
        cursor.execute(level + limits)


def _is_passing(error: OperationalError) -> bool:
    """Return True if a retry may succeed: after a lock, a deadlock or a serialization failure."""
    code = _code(error)
    return code in ("40001", "40P01", "55P03", 1020, 1205, 1213, 3572) or "locked" in str(code)


def is_delay(error: DatabaseError) -> bool:
    """Return True for a statement that took too long, or waited too long for a lock."""
    return _code(error) in ("55P03", "57014", 1205, 1969, 3024, 3572)


def _code(error: DatabaseError) -> Any:
    """Return PostgreSQL's SQLSTATE, MySQL's code, or SQLite's text of an error."""
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state or (error.args[0] if error.args else None)


def require_writable(using: str) -> None:
    """Raise ``OperationalError`` if a database takes no writes: it has become a replica, while this connection stayed
    open. Call it after rows were read: then they were read from a primary."""
    connection = connections[using]
    query = _READ_ONLY.get(connection.vendor)
    if query is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(query)
        (is_read_only,) = cursor.fetchone()
    if is_read_only not in (False, 0, "0", "OFF"):
        raise OperationalError(
            f"Database {using!r} takes no writes: it may have become a replica, which lags"
        )


def refuse_transaction(using: str, what: str) -> None:
    """Raise ``TransactionManagementError`` inside a transaction.

    Its snapshot may be older than what others have written, and what it reads of its own may be rolled back.
    """
    if connections[using].in_atomic_block or not connections[using].get_autocommit():
        raise transaction.TransactionManagementError(f"{what} can't be done inside a transaction.")


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return True inside a transaction, for which the outer blocks of a ``TestCase`` don't count."""
    if connection.in_atomic_block:
        return not all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    return not connection.get_autocommit()


def belongs_to(connection: BaseDatabaseWrapper, savepoints: set[str]) -> bool:
    """Return True if a commit hook that was registered under ``savepoints`` belongs to the open transaction.

    It always does, except in a ``TestCase``, whose outer blocks stand for autocommit: each save there is a transaction
    of its own, as ``captureOnCommitCallbacks()`` expects.
    """
    blocks = connection.atomic_blocks
    outer = sum(getattr(block, "_from_testcase", False) for block in blocks)
    if not outer:
        return True
    if outer == len(blocks):
        return False
    savepoint = connection.savepoint_ids[outer - 1]  # None for atomic(savepoint=False)
    return savepoint is not None and savepoint in savepoints
