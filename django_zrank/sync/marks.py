"""Marks: they wait, are deleted, and wait again if Redis has lost the writes that they led to."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Now

from ..builds import keep, lacked_batches, recorded
from ..declaration import Index
from ..exceptions import Busy, NotBuilt
from ..extension import installed
from ..iteration import batched
from ..models import SEVERAL, Batch, Build, Mark
from ..recent import Recent
from ..store import Health, trace_of
from ..transactions import PATIENCE, briefly

_CHUNK: Final = 1000
"""The number of marks that one statement deletes."""

NEWEST: Final = 100
"""The number of marks that a save reads. This takes a fraction of a push, and needs no index on the table."""

_SLOW: Final = 0.003
"""Seconds after which a query of the newest marks counts as slow: it takes longer than a push. While an old snapshot,
such as a dump's, keeps deleted marks, the query walks over them."""

_REST: Final = 100
"""Back-off after two slow queries in a row: 100 times the duration of the last one, at most ``_RECALL``."""

_RECALL: Final = 60.0
"""Seconds for which a slow or failed query is remembered. It fails for accounts without rights on the table."""

_QUEUED: Final = 1.0
"""Seconds without a query while ``NEWEST`` marks or more wait."""

_slow: Recent[bool] = Recent()
_unasked: Recent[bool] = Recent()
"""The databases whose last query was slow, and those that aren't queried for a while."""

Seen = tuple[int, str | None, str | None]
"""A mark as it was read: its id, ``via`` and ``member``."""

OF_MEMBERS: Final = (None, SEVERAL)
"""The ``via`` of a mark for members, or for all. Others are of related rows."""


def named_by(via: str | None, member: str | None) -> Sequence[str | None]:
    """Return the texts that a mark holds: the primary keys of its members, or the values of the column ``via``."""
    if via == SEVERAL and member is not None:
        return json.loads(member)  # type: ignore[no-any-return]
    return (member,)


def count_named(marks: Sequence[Seen]) -> int:
    """Return the number of marks, of which one that names several members counts as so many."""
    return len(marks) + sum(len(named_by(via, member)) - 1 for _, via, member in marks if via == SEVERAL)


def waiting_marks(index: Index) -> QuerySet[Mark]:
    """Return the marks of ``index`` that wait."""
    return Mark.objects.using(index.get_using()).filter(index=index.declared.name)


def next_marks(index: Index, after: int, until: int, limit: int, *, everybody: bool = True) -> list[Seen]:
    """Return the first ``limit`` marks with ids beyond ``after``, up to ``until``; without ``everybody``, none that is
    for all members."""
    marks = waiting_marks(index).filter(id__gt=after, id__lte=until)
    if not everybody:
        marks = marks.filter(member__isnull=False)
    first = marks.order_by("id").values_list("id", "via", "member")[:limit]
    connection = connections[index.get_using()]
    if connection.vendor != "postgresql":
        return list(first)
    is_nested = connection.in_atomic_block  # in that of a test
    # The table's statistics are wrong, because it fills and empties all the time: PostgreSQL would expect few marks of
    # an index, and read and sort the whole table for each batch. A serializable transaction would make those of others
    # fail.
    with transaction.atomic(connection.alias), connection.cursor() as cursor:
        level = "" if is_nested else "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
        cursor.execute(f"{level}SET LOCAL enable_sort = off")
        return list(first)


def newest_mark(index: Index) -> int:
    """Return the highest id of a mark of any index. A mark that is committed later may have a lower one."""
    newest: int | None = Mark.objects.using(index.get_using()).aggregate(newest=Max("id"))["newest"]
    return newest or 0


def newest_marks(using: str) -> list[tuple[str, str | None, str | None]] | None:
    """Return the index, ``via`` and ``member`` of all marks that wait in a database; None if there are ``NEWEST`` or
    more, or if it isn't queried for a while. Raises ``DatabaseError``."""
    if _unasked.get(using):
        return None
    connection = connections[using]
    quote = connection.ops.quote_name
    columns = ", ".join(map(quote, ("index", "via", "member")))
    began = monotonic()
    try:
        with connection.cursor() as cursor:  # the ORM would take longer to compile it
            cursor.execute(
                f"SELECT {columns} FROM {quote(Mark._meta.db_table)} ORDER BY id DESC LIMIT {NEWEST}"  # noqa: S608
            )
            newest = cursor.fetchall()
    except DatabaseError:
        _unasked.keep(using, True, _RECALL)
        raise
    taken = monotonic() - began
    if taken <= _SLOW:
        _slow.forget(using)
    elif _slow.get(using):
        _unasked.keep(using, True, min(_REST * taken, _RECALL))
    else:
        _slow.keep(using, True, _RECALL)
    if len(newest) < NEWEST:
        return list(newest)
    _unasked.keep(using, True, _QUEUED)
    return None


def waiting_ids(index: Index, limit: int) -> Sequence[int]:
    """Return the ids of the first ``limit`` marks that wait, 8 bytes each."""
    ids = waiting_marks(index).order_by("id").values_list("id", flat=True)[:limit]
    return array("q", ids.iterator())


def leave(index: Index, pks: Iterable[Any], *, patience: float = PATIENCE) -> int:
    """Leave marks for members, in several transactions; for all members, if None is among them. Return their number."""
    using, done = index.get_using(), 0
    for chunk in batched(pks, _CHUNK):
        marks = [
            Mark(index=index.declared.name, member=None if pk is None else index.to_text(pk)) for pk in chunk
        ]
        done += len(briefly(using, partial(Mark.objects.using(using).bulk_create, marks), patience=patience))
    return done


def spread(index: Index, marks: Sequence[Seen], *, patience: float = PATIENCE) -> int:
    """Replace marks that name several members by one for each member, in one transaction. Return the number of the new
    ones. Two processes that do this at once leave more marks than are needed.

    A replay that has left these marks isn't finished before the new ones are processed, so their rows are locked first.
    """
    using = index.get_using()

    def work() -> int:
        rows = [row for holder in index.holders if (row := _locked(holder))]
        if not delete(using, marks):
            return 0
        texts = dict.fromkeys(text for _, via, member in marks for text in named_by(via, member))
        new = Mark.objects.using(using).bulk_create(
            [Mark(index=index.declared.name, member=text) for text in texts], batch_size=_CHUNK
        )
        replayed = [
            row.index for row in rows if any(row.replayed_from <= pk <= row.replayed_to for pk, _, _ in marks)
        ]
        Build.objects.using(using).filter(index__in=replayed).update(replayed_to=newest_mark(index))
        return len(new)

    return briefly(using, work, patience=patience)


def discard(index: Index, marks: Sequence[Seen], *, patience: float = PATIENCE) -> int:
    """Delete marks for which no member has to be written. Return their number. Raises ``NotBuilt``."""

    def work() -> int:
        require_declared(index, _locked)
        return delete(index.get_using(), marks)

    return briefly(index.get_using(), work, patience=patience, repeatable=True)


def require_declared(index: Index, read: Callable[[Index], Build | None] = recorded) -> None:
    """Raise ``NotBuilt`` if the database notes a build from another declaration: marks may lead to members of that."""
    for holder in index.holders:
        row = read(holder)
        if row and not (index.declares(row.build) and index.declares(row.building)):
            raise NotBuilt(f"Index {holder.name!r} is built, or being built, from another declaration")


class Written(NamedTuple):
    """The state under which an index was written to, for the fence: the database must note the same."""

    build: str
    term: int

    version: int
    """Of the last write."""

    nonce: str = ""
    """That of the write's traces; '' if it has left none."""

    required: str = ""
    """The traces that the server had before it."""


def unmark(index: Index, marks: Sequence[Seen], written: Written, *, patience: float = PATIENCE) -> bool:
    """Delete marks of members that were ``written`` to an index, and keep their contents as a batch, with the trace of
    the write. Return False, with nothing changed, if they wait on.

    A build leaves no trace, and no batch is kept: it contains what the marks led to, and a server that has lost it is
    rebuilt. The row of the build notes the traces that no later write has required: a server that has these has
    all.

    This is the fence. If the database notes another build or term by now, marks wait on: the server that was written to
    may have been replaced by one that needs them. The row of the build is locked, so that either ``replay()``
    finds the batch, or this finds the row changed.

    Raises :exc:`~django_zrank.exceptions.Busy` if the row stays locked.
    """
    using = index.get_using()

    def work() -> tuple[bool, Build | None]:
        row = lock(index, written.build, written.term)
        # Marks that another drain has deleted meanwhile may be in both batches.
        if row is None or not (delete(using, marks) and written.nonce):
            return row is not None, None
        batch_of(index, marks, written).save(using=using, force_insert=True)
        note_trace(index, row, written)
        return True, row

    # If this is undone, the marks wait again.
    is_settled, row = briefly(using, work, patience=patience, repeatable=True)
    if row is not None:
        keep(index, row)  # the next drain requires what this one has noted
    return is_settled


def batch_of(index: Index, marks: Iterable[Seen], written: Written) -> Batch:
    """Return the batch that keeps the contents of marks, not saved yet."""
    said = dict.fromkeys([(via, member) for _, via, member in marks])
    return Batch(
        index=index.name,
        term=written.term,
        version=written.version,
        nonce=written.nonce,
        marks=list(said),
    )


def retire(index: Index, ids: Sequence[int], builds: Mapping[Index, tuple[str, int]]) -> None:
    """Delete marks that were read before builds of all holders began, without a batch: the builds contain what they led
    to, and a server that has lost one is rebuilt. If rows are locked, the marks are left to a drain.

    ``builds``: the build of each holder, and the term under which it was built."""
    using = index.get_using()

    def work(chunk: Sequence[int]) -> bool:
        return all(lock(holder, *builds[holder]) for holder in index.holders) and _delete(using, chunk) >= 0

    with suppress(Busy):
        for chunk in batched(ids, _CHUNK):
            if not briefly(using, partial(work, chunk)):
                break


def replay(index: Index, health: Health, *, noted: Build) -> int | None:
    """Begin the term of a server that was found in this state. Marks that were processed by a write that it lacks wait
    again, under new ids: what this server has lost, and what was written in histories that were abandoned for its own.

    Return the number of these marks, or 1 if marks of an earlier replay still wait. Return None, with nothing changed,
    if the database notes another build or term than ``noted``, or if batches of what it lacks were deleted.
    """
    using = index.get_using()
    term, version = health.noted
    row = Build.objects.using(using).filter(index=index.name, build=noted.build, term=noted.term)
    kept = Q(purged_term__lt=term) | Q(purged_term=term, purged__lte=version)
    lost = lacked_batches(index, health)

    def work() -> int | None:
        if not row.filter(kept).update(term=noted.term + 1, server=health.server, traces=""):
            return None
        # An unfinished replay becomes part of this one.
        unfinished = waiting_marks(index).filter(id__range=(noted.replayed_from, noted.replayed_to)).exists()
        before = newest_mark(index)
        number = 0
        for batch in lost.iterator(chunk_size=20):
            marks = [Mark(index=index.declared.name, via=via, member=member) for via, member in batch.marks]
            Mark.objects.using(using).bulk_create(marks)
            number += len(marks)
        gone = lost
        for kept_too in filter(None, (one.own_batches() for one in installed().values())):
            gone = gone.exclude(kept_too)
        gone._raw_delete(using)
        if number:
            Build.objects.using(using).filter(index=index.name).update(
                replayed_from=noted.replayed_from if unfinished else before + 1,
                replayed_to=newest_mark(index),
            )
        return number or int(unfinished)

    return briefly(using, work)


def replayed_marks(index: Index) -> QuerySet[Mark]:
    """Return the marks of the last replay that still wait."""
    row = recorded(index)
    return waiting_marks(index).filter(id__range=(row.replayed_from, row.replayed_to))


def forget_batches(index: Index, seconds: float) -> None:
    """Delete the batches that are older than ``seconds`` by the database's clock."""
    using = index.get_using()
    old = Batch.objects.using(using).filter(index=index.name, at__lt=Now() - timedelta(seconds=seconds))
    newest = old.order_by("term", "version").values_list("term", "version").last()
    if newest is None:
        return
    term, version = newest
    row = Build.objects.using(using).filter(index=index.name)

    def work() -> None:
        found = row.select_for_update(nowait=True).first()
        if found is None:
            return
        purged_term, purged = max((found.purged_term, found.purged), newest)
        row.update(purged_term=purged_term, purged=purged)
        # By term and version, not by age: another server may have been trusted since.
        gone = Q(term__lt=term) | Q(term=term, version__lte=version)
        Batch.objects.using(using).filter(gone, index=index.name)._raw_delete(using)

    with suppress(Busy):
        briefly(using, work, patience=0)


def note_trace(index: Index, row: Build, written: Written) -> None:
    """Note the trace of a write in the locked row of its index, in the place of those that the write has required."""
    required = {*written.required.split()}
    left = [trace for trace in row.traces.split() if trace not in required]
    row.traces = " ".join([*left, trace_of(written.version, written.nonce)])
    Build.objects.using(index.get_using()).filter(index=index.name).update(traces=row.traces)


def lock(index: Index, build: str, term: int) -> Build | None:
    """Lock the row of the build. Return it if it notes this build under this term."""
    row = _locked(index)
    return row if row and (row.build, row.term) == (build, term) else None


def _locked(index: Index) -> Build | None:
    """Return the row of the build, locked until the transaction ends, without waiting."""
    using = index.get_using()
    rows = Build.objects.using(using).filter(index=index.name)
    if connections[using].vendor != "sqlite":
        return rows.select_for_update(nowait=True).first()
    rows.update(term=F("term"))
    return rows.first()


def delete(using: str, marks: Iterable[Seen]) -> int:
    """Delete marks, without waiting for any other. Return their number."""
    return sum(_delete(using, chunk) for chunk in batched([pk for pk, _, _ in marks], _CHUNK))


def _delete(using: str, ids: Collection[int]) -> int:
    """Delete the marks with these ids, without waiting for any other. Return their number."""
    connection = connections[using]
    table = connection.ops.quote_name(Mark._meta.db_table)
    parameters: list[Any]
    if connection.vendor == "postgresql":
        # One array, because binding a thousand parameters takes longer than deleting. A range of the key, because
        # PostgreSQL would rather read the whole table than look up each of so many ids.
        sql = f"DELETE FROM {table} WHERE id BETWEEN %s AND %s AND id + 0 = ANY(%s::bigint[])"  # noqa: S608
        parameters = [min(ids), max(ids), f"{{{','.join(map(str, ids))}}}"]
    elif connection.vendor == "mysql":
        # A join looks up each id. With IN, InnoDB may scan the table, and wait for marks that are not committed yet.
        union = " UNION ALL ".join(["SELECT %s AS id", *["SELECT %s"] * (len(ids) - 1)])
        sql, parameters = f"DELETE m FROM ({union}) x STRAIGHT_JOIN {table} m ON m.id = x.id", list(ids)
    else:
        return Mark.objects.using(using).filter(pk__in=ids)._raw_delete(using)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)
