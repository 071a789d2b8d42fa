"""Write-behind: scores that changed in Redis are written to their column, each change exactly once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from random import shuffle
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from django.core.exceptions import FieldError
from django.db import DatabaseError, DataError, IntegrityError, OperationalError, connections, transaction
from django.db.models import DecimalField
from django.template.defaultfilters import pluralize

from ..builds import lacked_batches, lacks_deleted, recorded
from ..exceptions import Busy
from ..iteration import batched
from ..models import Batch, Build, Mark
from ..store import Health, Store
from ..sync.in_step import InStep
from ..transactions import PATIENCE, briefly, is_delay, refuse_transaction
from .column import Column
from .declaration import WriteBehindIndex
from .store import Flight, PendingStore

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 1500
"""Members of one flush. Taking them holds the server for about 3 ms."""

_FIRST: Final = 10
_STATEMENT: Final = 1000
"""The members of the first statement of a flush, and the most of one."""

_LONGEST: Final = 1.0
"""Seconds after which a flush begins no other statement. What it hasn't written is put back: triggers may be slow, and
each row stays locked until the end."""

_PAUSE: Final = 0.05

_SIGNAL: Final = 1644
"""MySQL's error code of SIGNAL."""

_JOINS: Final = {
    "sum": "{old} + {new}",
    "max": "{greatest}({old}, {new})",
    "min": "{least}({old}, {new})",
    "last": "{new}",
}


class _Superseded(Exception):
    """The database has already noted this flush, or has trusted another server."""


class _Changed(Exception):
    """Another process has put back some of what the flush carries."""


def flush(
    index: WriteBehindIndex,
    *,
    limit: int | None = None,
    patience: float = PATIENCE,
    skip_locked: bool = False,
) -> int:
    """Write pending scores of about ``limit`` members to their column, by default all that are pending now. Return the
    number of members.

    If a flush is killed, the next one completes it. Several processes may flush at the same time.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` if rows stay locked for longer
    than ``patience`` seconds, after all others were written, unless ``skip_locked`` is true; and
    ``TransactionManagementError`` inside a transaction.
    """
    # Redis returns pending changes as flush n, and keeps them. One transaction writes them to the column and notes n,
    # if the database still notes n - 1 under this term. Then Redis settles the flush. Until it has, it returns flush n
    # again.
    refuse_transaction(index.get_using(), "A flush")
    deadline, done = monotonic() + patience, 0
    while True:
        locked, step = set[str](), InStep(index.holders)
        for holder in index.holders:
            rest = None if limit is None else limit - done
            write = partial(write_scores, limit=rest, locked=locked, patience=patience)
            done += sum(step.each([holder], write).values())
        step.require()
        if skip_locked or not locked:
            return done
        if monotonic() >= deadline:
            raise Busy(
                f"Index {index.name!r}: {len(locked)} row{pluralize(len(locked), ' is,s are')} locked, such as that of "
                f"{min(locked)}: what changed there is still pending"
            )
        sleep(_PAUSE)


def write_scores(
    index: WriteBehindIndex,
    *,
    limit: int | None = None,
    locked: set[str] | None = None,
    patience: float = PATIENCE,
) -> int:
    """Flush about ``limit`` scores of one part, by default those that are pending now. Return their number.

    ``locked`` receives the members whose rows are locked. Their changes stay pending.
    """
    done, former, tried, store = 0, 0, 0, PendingStore.of(index)
    build, rule = store.read_meta("build", "rule")
    column = _column_of(index, store, rule)
    if column is None:
        return 0
    if not index.declares(build):
        store.rule = rule  # another release's build is live, which decides on the rule
    row = recorded(index)
    flushed, had = row.flushed, row.flushed if row.flushed_term == row.term else 0
    # What changes meanwhile may be taken in place of the rest, but this ends. With nothing pending, the declared rule
    # takes effect.
    bound = 2 * store.waiting()[0] + 1
    bound = bound if limit is None else min(bound, limit)
    while tried < bound:
        flight = store.take_pending(row.term, flushed, min(BATCH_SIZE, bound - tried), had=had)
        if flight is None:
            break
        if flight.rule != column.noted:
            column = _column_of(index, store, flight.rule)
            if column is None:
                break
        writing = _carry(index, column, store, flight, row.term, patience)
        if writing is None:  # another process has changed what it carries
            continue
        flushed = had = flight.number
        store.settle_flush(row.term, flushed)
        tried += len(flight.changes) - len(writing.unread)
        done += len(flight.changes) - len(writing.left)
        former += (len(flight.changes) - len(writing.left)) * (flight.rule != index.noted_rule)
        if locked is not None:
            locked.update(writing.locked)
        if len(writing.locked) == len(flight.changes):
            break
    if former:
        logger.warning(
            "Index %r: flushed %d pending scores under another release's write_behind",
            index.name,
            former,
        )
    return done


def _column_of(index: WriteBehindIndex, store: PendingStore, rule: str) -> Column | None:
    """Return the column that changes by a rule belong to, perhaps by that of another release; None if nothing may be
    pending, or no column can take it."""
    if not rule or rule == index.noted_rule:
        return index.column
    try:
        return Column.of_noted(index.model, index.ordering, rule)
    except FieldError as error:
        pending, _ = store.waiting()
        if pending:
            logger.error(
                "Index %r: changes of %d scores are pending under another release's write_behind (%s), and no column "
                "can take them: %s. Run sync_zrank with the release that declared it.",
                index.name,
                pending,
                rule,
                error,
            )
        return None


def _carry(
    index: WriteBehindIndex, column: Column, store: PendingStore, flight: Flight, term: int, patience: float
) -> _Writing | None:
    """Write a flush to the column and note it, unless that is done. Return None if it doesn't carry this any more.

    Raises ``IndexUnhealthy`` if the database knows another term.
    """
    using = index.get_using()
    is_sqlite = connections[using].vendor == "sqlite"
    row = Build.objects.using(using).filter(index=index.name, term=term, flushed=flight.number - 1)

    def note() -> None:
        if connections[using].vendor == "mysql":
            # With rows locked, don't wait for a lock whose holder may have been stopped.
            list(row.select_for_update(nowait=True).values_list("pk"))
        if not row.update(flushed=flight.number, flushed_term=term):
            raise _Superseded

    def work() -> _Writing:
        writing = _Writing(index, column)
        if is_sqlite:  # which locks all tables at once, with the first write
            note()
        writing.write(flight.changes)
        left = set(writing.left)
        written = [member for member in flight.changes if member not in left]
        _mark(index, written)
        # The build's row comes last, so that it isn't locked for long.
        if not is_sqlite:
            note()
        if not store.confirm_flush(term, flight, writing.left):
            raise _Changed
        # Kept like a batch of marks: they are replayed on a server that has lost the flush.
        Batch.objects.using(using).create(
            index=index.name,
            term=term,
            version=flight.version,
            flush=flight.number,
            marks=[(None, member) for member in written],
        )
        return writing

    try:
        return briefly(using, work, patience=patience)
    except _Changed:
        return None
    except _Superseded:
        found = recorded(index)
        if found.term == term and found.flushed >= flight.number:
            return _Writing(index, column)
        raise store.not_accepted() from None


def _mark(index: WriteBehindIndex, members: Sequence[str]) -> None:
    """Mark the members that a flush has carried, in its transaction. A build that was made in the meantime from another
    declaration doesn't have their changes. The flush itself may fire no trigger, if it changes no row, or if a trigger
    of the project skips the row."""
    if not members:
        return
    connection, name = connections[index.get_using()], index.declared.name
    quote = connection.ops.quote_name
    # bulk_create() takes as long as the rest of the flush.
    sql = f"INSERT INTO {quote(Mark._meta.db_table)} ({quote('index')}, {quote('member')}) "
    parameters: list[Any]
    if connection.vendor == "postgresql":
        sql, parameters = f"{sql}SELECT %s, unnest(%s::text[])", [name, list(members)]
    elif connection.vendor == "sqlite":
        sql, parameters = f"{sql}SELECT %s, value FROM json_each(%s)", [name, json.dumps(members)]  # noqa: S608
    else:
        sql += f"VALUES (%s, %s){', (%s, %s)' * (len(members) - 1)}"
        parameters = [text for member in members for text in (name, member)]
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


class _Writing:
    """The writes of one flush. One row that is locked, slow, or refused by the database doesn't stop the others."""

    def __init__(self, index: WriteBehindIndex, column: Column) -> None:
        self.index, self.column, self.using = index, column, index.get_using()

        self.locked: list[str] = []
        """Members whose rows are locked, or take too long: their changes stay pending."""

        self.unread: list[str] = []
        """Members for which no time was left."""

    @property
    def left(self) -> list[str]:
        return self.locked + self.unread

    def write(self, changes: Mapping[str, int]) -> None:
        """Write changes in statements that become larger, for about ``_LONGEST`` seconds."""
        todo, size, began = list(changes.items()), _FIRST, monotonic()
        # In another order each time, so that slow rows don't keep the same others waiting.
        shuffle(todo)
        while todo:
            before = monotonic()
            if before - began > _LONGEST:
                self.unread += [member for member, _ in todo]
                break
            self.merge(dict(todo[:size]))
            del todo[:size]
            size = min(4 * size, _STATEMENT) if monotonic() - before < _LONGEST / 10 else max(1, size // 4)

    def merge(self, changes: dict[str, int]) -> None:
        """Write changes in one statement, by halves if that fails because of a row."""
        try:
            with transaction.atomic(self.using):
                merged = merge_changes(self.index, self.column, changes)
        except DatabaseError as error:
            is_refused = self.is_refusal(error)
            if not (is_refused or is_delay(error)):
                raise
            if len(changes) > 1:
                for half in batched(changes.items(), (len(changes) + 1) // 2):
                    self.merge(dict(half))
                return
            ((member, change),) = changes.items()
            if is_refused:
                self.refuse(member, change, error)
            else:
                logger.warning("Index %r: the change of %s stays pending: %s", self.index.name, member, error)
                self.locked.append(member)
            return
        self.locked += merged.locked
        for member in merged.refused:
            self.refuse(member, changes[member], "it is out of range")

    def refuse(self, member: str, change: int, reason: object) -> None:
        logger.error(
            "Index %r: the database refuses the change %d of %s: %s", self.index.name, change, member, reason
        )

    def is_refusal(self, error: DatabaseError) -> bool:
        """Return True for an error of one row: of a constraint, the column's range, a trigger or a policy."""
        if isinstance(error, OperationalError) and error.args[:1] != (_SIGNAL,):
            return False
        return isinstance(error, (DataError, IntegrityError)) or self.can_write()

    def can_write(self) -> bool:
        """Return False if the database refuses a flush, whatever it writes."""
        try:
            with transaction.atomic(self.using):
                merge_changes(self.index, self.column, {})
        except DatabaseError:
            return False
        return True


def are_lost(index: WriteBehindIndex, store: Store) -> bool:
    """Return True if the database lacks flushes that it had noted: it was restored from a backup, or failed over. Then
    a new term must begin before anything can be flushed or verified."""
    # Redis is read first, because a flush is noted before it is settled.
    rule, settled = store.read_meta("rule", "settled")
    if index.column is None and not rule:  # nothing is pending under a former release's write_behind, either
        return False
    return recorded(index).flushed < int(settled or 0)


def reconcile(
    index: WriteBehindIndex, store: PendingStore, health: Health, *, everything: bool = False
) -> bool:
    """Reduce what is pending on a server to what the column lacks, before the server is trusted. Return False if it
    has changed since it was found: then it is to be looked at again.

    Call it when the database has noted a higher term than the server's, so that no flush can be written under that one
    any more. A flush takes all that is pending of a member. So if this server lacks a flush, what is pending here of
    its members has been written already. ``everything``: drop all that is pending, because more was lost than is kept.
    """
    if index.column is None and not any(store.read_meta("rule")):
        return True
    row, (term, _) = recorded(index), health.position
    flushes = Batch.objects.using(index.get_using()).filter(index=index.name, flush__isnull=False)
    lacking = lacked_batches(index, health).filter(flush__isnull=False)
    members = {member for marks in lacking.values_list("marks", flat=True) for _, member in marks}
    taken, took = (int(number or 0) for number in store.read_meta("taken", "took"))
    batch = flushes.filter(term=term, flush=taken).first()
    # If its batch has been deleted, assume that all was written: a change must not count twice.
    is_purged = row.flushed_term > term and (term, took) <= (row.purged_term, row.purged)
    committed = batch is None and (is_purged or (row.flushed_term == term and row.flushed >= taken))
    written = {member for _, member in batch.marks} if batch else ()
    lost = everything or lacks_deleted(row, health)
    return store.reconcile_pending(
        health,
        row.flushed,
        committed=committed,
        everything=lost,
        members=() if lost else members,
        written=written,
    )


# The statements, for each database


class Merged(NamedTuple):
    """The members whose column didn't get their change, although they have a row."""

    locked: list[str]
    """Those whose rows are locked."""

    refused: list[str]
    """Those for which the column has no room."""


def merge_changes(index: WriteBehindIndex, column: Column, changes: Mapping[str, int]) -> Merged:
    """Merge each change into its member's column by the column's rule. A null stays null: its row isn't ranked.

    Locked rows are skipped.
    """
    connection = connections[index.get_using()]
    write: Any = {"postgresql": _Postgresql, "mysql": _MySQL}.get(connection.vendor, _SQLite)
    return write(index, column, connection, changes).run()  # type: ignore[no-any-return]


class _Statements:
    """The statements for some changes. Rows are named by the position of their change."""

    greatest, least = "GREATEST", "LEAST"

    lock = ""
    """The clause that locks rows, and skips those that are locked."""

    def __init__(
        self, index: WriteBehindIndex, column: Column, connection: Any, changes: Mapping[str, int]
    ) -> None:
        self.index, self.connection, self.members = index, connection, list(changes)
        pk: Any = index.model._meta.pk
        quote = connection.ops.quote_name
        self.is_decimal = isinstance(column.field, DecimalField)
        self.table, self.pk = quote(index.model._meta.db_table), quote(pk.column)
        self.column = quote(column.field.column)
        old = f"t.{self.column}"
        self.joined = _JOINS[column.rule].format(
            old=old, new="x.change", greatest=self.greatest, least=self.least
        )
        self.changes = list(map(column.value, changes.values()))
        prepare = partial(pk.get_db_prep_value, connection=connection, prepared=False)
        self.keys = [prepare(index.from_text(member)) for member in changes]

    def run(self) -> Merged:
        """Lock the rows, and write those that can be."""
        every = range(len(self.members))
        wanted = self.select(every, self.joined, self.lock)
        refused = [] if self.is_decimal else [at for at, value in wanted.items() if isinstance(value, float)]
        absent = [at for at in every if at not in wanted]
        for at in refused:
            del wanted[at]
        if wanted or not self.members:
            self.execute(self.update, list(wanted))
        return self.merged(absent, refused)

    def merged(self, absent: list[int], refused: Sequence[int] = ()) -> Merged:
        """Return the result: those that are ``absent`` but have a row are locked."""
        locked = self.select(absent, "1") if absent and self.lock else {}
        names = self.members.__getitem__
        return Merged(list(map(names, locked)), list(map(names, refused)))

    def select(self, positions: Sequence[int], what: str, lock: str = "") -> dict[int, Any]:
        """Return ``what`` of the rows that exist, and whose column is not null, by position."""
        sql = "SELECT x.n, {what} FROM {source} {join} {table} t ON t.{pk} = x.pk WHERE t.{column} IS NOT NULL {lock}"
        return dict(self.execute(sql, positions, what=what, lock=lock))

    def execute(self, sql: str, positions: Sequence[int], **parts: str) -> list[Any]:
        """Execute a statement about the changes at these positions. Return its rows."""
        source, parameters = self.source(positions)
        with self.connection.cursor() as cursor:
            cursor.execute(sql.format(**vars(self), source=source, join=self.join, **parts), parameters)
            return cursor.fetchall() if cursor.description else []

    update = ""
    """The statement that writes to rows whose column is not null."""

    join = "JOIN"

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        """Return the changes at these positions as a table ``x``, and its parameters."""
        raise NotImplementedError


class _Postgresql(_Statements):
    lock = "FOR NO KEY UPDATE OF t SKIP LOCKED"
    update = (
        "WITH old AS (SELECT x.n, t.{pk} AS pk, {joined} AS value FROM {source} "
        "JOIN {table} t ON t.{pk} = x.pk WHERE t.{column} IS NOT NULL {lock}), "
        "new AS (UPDATE {table} AS t SET {column} = old.value FROM old WHERE t.{pk} = old.pk) "
        "SELECT n FROM old"
    )

    def run(self) -> Merged:
        every = range(len(self.members))
        with self.connection.cursor() as cursor:
            # With the default random_page_cost the whole table would be read. A deferred constraint must fail here,
            # where the change at fault can be found, not at the commit. A trigger may wait for locks.
            limits = "SET LOCAL lock_timeout = '400ms'; SET LOCAL random_page_cost = 1"
            cursor.execute(f"{limits}; SET CONSTRAINTS ALL IMMEDIATE")
        found = {at for (at,) in self.execute(self.update, every, lock=self.lock)}
        return self.merged([at for at in every if at not in found])

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        key_type = self.index.model._meta.pk.db_type(self.connection)
        change_type = "numeric" if self.is_decimal else "bigint"
        # As text: drivers refuse lists of several types, as of addresses of both versions.
        keys = [self.members[at] for at in positions]
        changes = [str(self.changes[at]) for at in positions]
        names = [str(at) for at in positions]
        sql = f"unnest(%s::text[]::{key_type}[], %s::text[]::{change_type}[], %s::text[]::int[]) AS x(pk, change, n)"
        return sql, [keys, changes, names]


class _MySQL(_Statements):
    join = "STRAIGHT_JOIN"
    update = (
        "UPDATE {source} STRAIGHT_JOIN {table} t ON t.{pk} = x.pk "
        "SET t.{column} = {joined} WHERE t.{column} IS NOT NULL"
    )

    @property
    def lock(self) -> str:  # type: ignore[override]
        skips = self.connection.features.has_select_for_update_skip_locked
        # In a deadlock, InnoDB rolls back the smaller transaction, so this one must never wait.
        return "FOR UPDATE SKIP LOCKED" if skips else "FOR UPDATE NOWAIT"

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        if not positions:
            return "(SELECT NULL AS pk, 0 AS `change`, 0 AS n FROM DUAL WHERE 1 = 0) x", []
        rows = ["SELECT %s AS pk, %s AS `change`, %s AS n", *["SELECT %s, %s, %s"] * (len(positions) - 1)]
        parameters = [value for at in positions for value in (self.keys[at], self.changes[at], at)]
        return f"({' UNION ALL '.join(rows)}) x", parameters


class _SQLite(_Statements):
    greatest, least = "max", "min"
    update = "UPDATE {table} AS t SET {column} = {joined} FROM {source} WHERE t.{pk} = x.pk AND t.{column} IS NOT NULL"

    def __init__(
        self, index: WriteBehindIndex, column: Column, connection: Any, changes: Mapping[str, int]
    ) -> None:
        super().__init__(index, column, connection, changes)
        if places := getattr(column.field, "decimal_places", 0):
            self.joined = f"ROUND({self.joined}, {places})"

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        rows = [(self.keys[at], self.changes[at], at) for at in positions]
        sql = (
            "(SELECT json_extract(value, '$[0]') AS pk, CAST(json_extract(value, '$[1]') AS NUMERIC) AS change, "
            "json_extract(value, '$[2]') AS n FROM json_each(%s)) AS x"
        )
        return sql, [json.dumps(rows, default=str)]
