"""Transactions: short ones, which don't wait for locks that a stopped process may hold; reads within a time limit, from
one snapshot if the database supports it; and those that are open."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from .exceptions import Busy
from .recent import Recent

PATIENCE: Final = 5.0
"""Seconds for which a watcher retries while a row is locked."""

_PAUSE: Final = 0.05

_LONGEST_STOP: Final = 5
"""Seconds after which PostgreSQL, MariaDB and MySQL roll back a transaction whose process has stopped in it."""

LONG_PATIENCE: Final = 2.0 * _LONGEST_STOP
"""Seconds for which the transaction of a process that has stopped is waited for."""

_READ_ONLY: Final = {
    # The second is what an operator sets to fence a primary (default_transaction_read_only).
    "postgresql": "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')",
    "mysql": "SELECT @@global.read_only, @@global.{prefix}_read_only",
}

_LOOK: Final = 60.0
_alone: Recent[bool] = Recent()
"""The servers that were no nodes of a cluster in the last ``_LOOK`` seconds: a look takes over a millisecond."""

_OPCODES: Final = 10_000
"""Instructions of SQLite between two looks at the clock: less than a millisecond."""

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")
Given = TypeVar("Given")


def briefly(
    using: str, work: Callable[[], Answer], *, patience: float = PATIENCE, repeatable: bool = False
) -> Answer:
    """Return the result of ``work``, run in a separate transaction, and retried as by :func:`retry`. ``repeatable``: it
    does no harm if a crash of the machine undoes it."""
    is_own = not connections[using].in_atomic_block  # not inside that of a test

    def attempt() -> Answer:
        with (
            _without_syncing(connections[using]) if repeatable and is_own else nullcontext(),
            _limits(connections[using], is_own=is_own),
        ):
            return work()

    return retry(attempt, patience=patience)


def update_briefly(rows: QuerySet[Any], **values: Any) -> int:
    """Update ``rows`` in a transaction of its own, and return their number. It waits until the transaction of a process
    that has stopped is rolled back, but not longer: then it raises :exc:`Busy`."""
    return briefly(rows.db, partial(rows.update, **values), patience=LONG_PATIENCE)


def retry(work: Callable[[], Answer], *, patience: float = PATIENCE) -> Answer:
    """Return the result of ``work``. After a lock, a deadlock or a serialization failure it is tried again, for
    ``patience`` seconds; then :exc:`Busy` is raised."""
    deadline = monotonic() + patience
    while True:
        with _until(deadline):
            return work()


def retry_steps(
    make: Callable[[], Generator[Asked, Given, Answer]], *, patience: float = PATIENCE
) -> Generator[Asked, Given, Answer]:
    """Take the steps that ``make()`` returns, and begin again with the first one where :func:`retry` tries again."""
    deadline = monotonic() + patience
    while True:
        with _until(deadline):
            return (yield from make())


@contextmanager
def _until(deadline: float) -> Iterator[None]:
    """Suppress what passes, after a pause; raise :exc:`Busy` after the deadline."""
    try:
        yield
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
    # Not one cursor for all: until it is closed, the connection seems to be reading rows.
    before = _pragma(connection, "busy_timeout")
    _pragma(connection, "busy_timeout = 0")
    try:
        yield
    finally:
        _pragma(connection, f"busy_timeout = {before}")


def _pragma(connection: BaseDatabaseWrapper, text: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {text}")
        return cursor.fetchone()[0]


@contextmanager
def _without_syncing(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Commit without waiting for the disk, on SQLite in WAL mode. While a commit lasts, transactions that have read
    before they write fail, and waiting takes ten times as long as the rest."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous")
        mode, before = cursor.fetchone()
        if mode == "wal" and before > 1:
            cursor.execute("PRAGMA synchronous = 1")
        try:
            yield
        finally:
            if mode == "wal" and before > 1:
                cursor.execute(f"PRAGMA synchronous = {before}")


@contextmanager
def _limits(connection: BaseDatabaseWrapper, *, is_own: bool) -> Iterator[None]:
    """Run a transaction each of whose statements sees what was committed before it. Limit what it waits for (on
    PostgreSQL, table locks included), and end it if its process has stopped.

    At a stricter isolation level, PostgreSQL would take the snapshot before a statement waits for a lock, and miss what
    its holder commits; and a ``DELETE`` of marks that are gone would lock the gap where others insert theirs (MySQL).
    """
    limits: dict[str, int] = {}
    begin = ["SET TRANSACTION ISOLATION LEVEL READ COMMITTED"] if is_own else []
    if connection.vendor == "postgresql":
        begin += ["SET LOCAL lock_timeout = '1s'", "SET LOCAL statement_timeout = '5s'"]
        begin += [f"SET LOCAL idle_in_transaction_session_timeout = '{_LONGEST_STOP}s'"]
    elif connection.vendor == "mysql":
        limits["innodb_lock_wait_timeout"] = 1
        # MySQL limits idle connections, not idle transactions; the limit lasts as long as this transaction.
        is_mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
        limits["idle_transaction_timeout" if is_mariadb else "wait_timeout"] = _LONGEST_STOP
    else:
        begin = []
    before = ", ".join(f"@zrank_{name} = @@{name}, {name} = {value}" for name, value in limits.items())
    after = ", ".join(f"{name} = @zrank_{name}" for name in limits)
    with connection.cursor() as cursor:
        if limits:
            cursor.execute(f"SET {before}")
        try:
            with transaction.atomic(connection.alias):
                if begin:
                    cursor.execute("; ".join(begin))
                yield
        finally:
            if limits:
                cursor.execute(f"SET {after}")


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


class _Deadline:
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
    deadline = _Deadline(seconds)
    is_sqlite = connection.vendor == "sqlite"
    block = _on_sqlite(connection, deadline) if is_sqlite else _in_transaction(connection)
    with block, connection.execute_wrapper(deadline.limit):
        yield


@contextmanager
def _on_sqlite(connection: BaseDatabaseWrapper, deadline: _Deadline) -> Iterator[None]:
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


def require_writable(using: str) -> None:
    """Raise ``OperationalError`` if a database takes no writes: it is a standby now, or was fenced, while this
    connection stayed open. Call it after rows were read: then they were read from a primary."""
    connection: Any = connections[using]
    query = _READ_ONLY.get(connection.vendor)
    if query is None:
        return
    if connection.vendor == "mysql":
        is_old = connection.mysql_is_mariadb and connection.mysql_version < (11, 1)
        query = query.format(prefix="tx" if is_old else "transaction")
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchone()
    if not {False, "0", "off", "OFF"}.issuperset(found):
        raise OperationalError(f"Database {using!r} takes no writes: it may be a standby now, which lags")


def require_synced(using: str) -> None:
    """Raise ``OperationalError`` if reads may miss what was committed on another node of a Galera cluster."""
    if is_unsynced(using):
        raise OperationalError(
            f"Database {using!r} is a node of a Galera cluster, which may lag: set wsrep_sync_wait = 1"
        )


def is_unsynced(using: str) -> bool:
    """Return True for a node of a Galera cluster whose reads don't wait for what was committed on the others."""
    connection = connections[using]
    server = using, connection.settings_dict["HOST"]
    if connection.vendor != "mysql" or _alone.get(server):
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION VARIABLES LIKE 'wsrep_%'")  # MySQL has none of them
        found = dict(cursor.fetchall())
    if found.get("wsrep_on") != "ON":
        _alone.keep(server, True, _LOOK)
        return False
    return not int(found["wsrep_sync_wait"]) & 1


def refuse_transaction(using: str, what: str) -> None:
    """Raise ``TransactionManagementError`` inside a transaction, or where the connection :func:`holds_snapshot`.

    Its snapshot may be older than what others have written, and what it reads of its own may be rolled back.
    """
    connection = connections[using]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise transaction.TransactionManagementError(f"{what} can't run inside a transaction.")
    if holds_snapshot(connection):
        raise transaction.TransactionManagementError(
            f"{what} can't run in a transaction that BEGIN has opened, nor, on SQLite, while rows of a query are being "
            "read, as by iterator()."
        )


def is_begun(connection: BaseDatabaseWrapper) -> bool:
    """Return True in a transaction that was opened by executing ``BEGIN``. MariaDB and MySQL don't tell."""
    driver: Any = connection.connection
    if driver is None or connection.in_atomic_block:
        return False
    if connection.vendor == "postgresql":
        # 0: idle. Psycopg 3 makes an object for each look at "info".
        return bool((getattr(driver, "pgconn", None) or driver.info).transaction_status)
    return connection.vendor == "sqlite" and bool(driver.in_transaction)


def holds_snapshot(connection: BaseDatabaseWrapper) -> bool:
    """Return True if, outside of Django's transactions, statements may see an older state: if a transaction
    :func:`is_begun`; and on SQLite until all rows of another statement have been read, as by ``iterator()``, since all
    statements of a connection share a snapshot."""
    driver: Any = connection.connection
    if driver is None or connection.in_atomic_block or connection.vendor != "sqlite":
        return is_begun(connection)
    try:
        # The only way to ask: a collation can't be replaced while a statement is active. Otherwise all statements are
        # prepared anew, which takes about 100 microseconds.
        driver.create_collation("zrank_probe", _collate)
    except connection.Database.OperationalError:  # type: ignore[attr-defined]
        return True
    return is_begun(connection)


def _collate(one: str, other: str) -> int:
    return (one > other) - (one < other)


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return True inside a transaction, for which the outer blocks of a ``TestCase`` don't count, or where the
    connection :func:`holds_snapshot`."""
    if connection.in_atomic_block:
        return not all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    return not connection.get_autocommit() or holds_snapshot(connection)


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
