"""Write-behind: scores that changed in Redis are written to their column, each change exactly once."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from django.core.exceptions import FieldError
from django.db import DataError, IntegrityError, connections, transaction
from django.db.models import Q

from ..codec.column import Column
from ..conf import get_settings
from ..exceptions import Busy, IndexUnavailable
from ..index import RankIndex
from ..members import batched
from ..models import Batch, Generation, Mark
from ..notes import noted
from ..recent import Recent
from ..store import Flight, Health, Store
from .flush_statements import add_to_column
from .idle import sweep, write_touches
from .reach import Reach
from .transactions import PATIENCE, briefly, refuse_transaction, without_waiting

__all__ = ["are_lost", "flush", "flush_again", "flush_soon", "is_due", "reconcile", "write_scores"]

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 1500
"""Members of one flush. Taking them holds the server for about 3 ms."""

_SHARE: Final = 1000
"""The most members that a process flushes after a push, because a request waits for it."""

_KINDS: Final = {"sum": "increment", "max": "best", "min": "best", "last": "latest"}
"""The ``write_behind`` of each rule."""


class _Superseded(Exception):
    """The database has already noted this flush, or has accepted another server."""


def flush(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Write pending scores and touches of about ``limit`` members to their columns. Return the number of members.

    Redis hands out what is pending as flush *n*, and keeps it. One transaction adds it to the column and notes *n*, if
    the database still notes *n - 1* under this term. Then Redis settles it. A flush that was killed is completed by the
    next one, under its own number. Any number may run at once.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` if rows stay locked for longer
    than ``patience`` seconds; and ``TransactionManagementError`` inside a transaction.
    """
    refuse_transaction(index.get_using(), "A flush")
    return Reach(index).total(partial(_flush, patience=patience), limit)


def _flush(index: RankIndex, *, limit: int | None, patience: float) -> int:
    done = write_touches(index, limit=limit, patience=patience)
    return done + write_scores(index, limit=None if limit is None else limit - done, patience=patience)


def write_scores(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Flush about ``limit`` scores of one part. Return their number."""
    done, store = 0, Store.of(index)
    declared = index if index.column else _declared_before(index, store)
    if declared is None:
        return 0
    row = noted(index)
    flushed = row.flushed
    while limit is None or done < limit:
        size = BATCH_SIZE if limit is None else min(BATCH_SIZE, limit - done)
        flight = store.take_pending(row.term, flushed, size)
        if flight is None:
            break
        if not _carry(declared, flight, row.term, patience):
            raise store.not_accepted()
        flushed = flight.number
        store.settle_flush(row.term, flushed)
        done += len(flight.changes)
    if done and declared is not index:
        logger.warning(
            "Index %r: flushed %d scores that began in Redis; write_behind is not declared any more",
            index.name,
            done,
        )
    return done


def _declared_before(index: RankIndex, store: Store) -> RankIndex | None:
    """Return a part with the ``write_behind`` of an earlier release; None if all of its scores are flushed, or if no
    column can take them."""
    rule = store.noted_rule()
    if not rule:
        return None
    part = index.whole.called(index.name)
    try:
        part.column = Column.parse(index.model, index.ordering, _KINDS[rule])
    except FieldError as error:
        pending, _ = store.waiting()
        if pending:
            logger.error(
                "Index %r: the scores of %d members are pending by a write_behind that is not declared any more, and "
                "no column can take them: %s. Run sync_zrank with the release that declared it.",
                index.name,
                pending,
                error,
            )
        return None
    return part


def _carry(index: RankIndex, flight: Flight, term: int, patience: float) -> bool:
    """Write a flush to the column and note it, unless that is done. Return False if the database knows another term."""
    using = index.get_using()

    def work() -> None:
        refused = _write(index, flight)
        # The generation's row comes last, so that it is locked for two short statements only.
        row = Generation.objects.using(using).filter(index=index.name, term=term, flushed=flight.number - 1)
        if connections[using].vendor == "mysql":
            # With rows locked, don't wait for a lock whose holder may have been stopped.
            list(row.select_for_update(nowait=True).values_list("pk"))
        if not row.update(flushed=flight.number, flushed_term=term):
            raise _Superseded
        # Kept like a batch of marks: they are replayed on a server that has lost the flush.
        marks = [(None, member) for member in flight.changes]
        Batch.objects.using(using).create(
            index=index.name, term=term, version=flight.version, flush=flight.number, marks=marks
        )
        Mark.objects.using(using).bulk_create(Mark(index=index.whole.name, member=one) for one in refused)

    try:
        briefly(using, work, patience=patience)
    except _Superseded:
        row = noted(index)
        return row.term == term and row.flushed >= flight.number
    return True


def _write(index: RankIndex, flight: Flight) -> list[str]:
    """Write changes to the column. Return the members whose change the database refuses, because of a constraint or the
    column's range. Such a change is logged, and lost."""
    changes = flight.changes
    if not changes:
        return []
    try:
        with transaction.atomic(index.get_using()):
            add_to_column(index, flight.rule, changes)
    except (DataError, IntegrityError) as error:
        if len(changes) > 1:
            halves = map(dict, batched(changes.items(), (len(changes) + 1) // 2))
            return [refused for half in halves for refused in _write(index, flight._replace(changes=half))]
        ((member, change),) = changes.items()
        logger.error(
            "Index %r: the database refuses the change %d of %s: %s", index.name, change, member, error
        )
        return [member]
    return []


_flushed: Recent[bool] = Recent()
"""By name: the indexes that this process has flushed lately."""


def is_due(index: RankIndex) -> bool:
    """Return True, at most every ``FLUSH_EVERY`` seconds, if this process should flush ``index`` or sweep it."""
    if (index.column is None and index.awake is None) or _flushed.get(index.name):
        return False
    return _flushed.keep(index.name, True, get_settings().flush_every)


def flush_again(index: RankIndex) -> None:
    """Make the next flush due at once, as more is pending."""
    _flushed.forget(index.name)


def flush_soon(index: RankIndex) -> None:
    """Flush a batch after a push, at most every ``FLUSH_EVERY`` seconds, without waiting for a lock."""
    connection = connections[index.get_using()]
    if connection.in_atomic_block or not is_due(index):
        return
    try:
        with without_waiting(connection):
            flush(index, limit=_SHARE, patience=0.0)
            sweep(index, limit=_SHARE, patience=0.0)
    except (Busy, IndexUnavailable) as error:
        logger.debug("Index %r: not flushed. %s", index.name, error)


def are_lost(index: RankIndex, store: Store) -> bool:
    """Return True if the database lacks flushes that it had noted: it was restored from a backup, or failed over. Then
    a new term must begin before anything can be flushed or verified."""
    if index.column is None:
        return False
    _, settled = store.in_flight()  # read first, because a flush is noted before it is settled
    return noted(index).flushed < settled


def reconcile(index: RankIndex, store: Store, health: Health, *, everything: bool = False) -> None:
    """Reduce what is pending on a server to what the column lacks, before the server is accepted.

    Call it when the database has noted a higher term than the server's, so that no flush can be written under that one
    any more. A flush takes all that is pending of a member. So if this server lacks a flush, what is pending here of
    its members has been written already. ``everything``: drop all that is pending, because more was lost than is kept.
    """
    if index.column is None and not store.noted_rule():
        return
    row, (term, version) = noted(index), health.position
    flushes = Batch.objects.using(index.get_using()).filter(index=index.name, flush__isnull=False)
    lacking = flushes.filter(Q(term__gt=term) | Q(term=term, version__gt=version))
    members = {member for marks in lacking.values_list("marks", flat=True) for _, member in marks}
    taken, _ = store.in_flight()
    committed = row.flushed_term == term and row.flushed >= taken
    if not committed:
        # If its batch has been deleted, assume that it was written: a change must not count twice.
        is_purged = row.flushed_term > term and (term, store.took()) <= (row.purged_term, row.purged)
        committed = is_purged or flushes.filter(term=term, flush=taken).exists()
    lost = everything or health.position < (row.purged_term, row.purged)
    store.reconcile_pending(
        health, row.flushed, committed=committed, everything=lost, members=() if lost else members
    )
