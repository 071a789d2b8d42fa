"""Idle members: their columns tell when they were last seen, and sweeps leave marks for those that fell asleep."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

from django.db import DataError, IntegrityError, connections, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from ..capture.watched_tables import every_row
from ..exceptions import Busy, IndexUnavailable
from ..iteration import batched
from ..models import Build
from ..sync.in_step import InStep
from ..sync.marks import leave
from ..sync.push import push
from ..sync.rows import fastest
from ..transactions import PATIENCE, briefly, is_open, refuse_transaction, without_waiting
from .awake import MOMENT, TimeAgo
from .declaration import IdleIndex
from .store import IdleStore

logger = logging.getLogger("django_zrank.sync")

PAGE_SIZE: Final = 2000
"""Members of one query of a sweep."""

_STATEMENT: Final = 200
"""Rows of one write to the column: SQLite may not take more than 999 parameters."""

_PATIENCE: Final = 0.2
"""Seconds for which a caller waits for rows that are locked."""

_PAUSE: Final = 0.02

_NOW: Final = timedelta(0)


def asleep_since(index: IdleIndex) -> int | None:
    """Return the latest time, in microseconds of the database's clock, at which a row that is asleep now was last seen.
    None if the index doesn't declare ``idle``, or if the database notes no build yet."""
    if index.awake is None:
        return None
    names = [holder.name for holder in index.holders]
    rows = Build.objects.using(index.get_using()).filter(index__in=names)
    found = rows.annotate(asleep=TimeAgo(index.awake.period)).values_list("asleep", flat=True).first()
    return None if found is None else MOMENT.whole(found)


def sweep(index: IdleIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Leave marks for the members that fell asleep since the last sweep, about ``limit``. Return their number.

    Redis notes how far that got, after the marks are committed: if a sweep is killed, or the server loses the note, the
    next sweep leaves the same marks again.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` if the marks can't be
    written for longer than ``patience`` seconds; and ``TransactionManagementError`` inside a transaction.
    """
    refuse_transaction(index.get_using(), "A sweep")
    until = asleep_since(index)
    if until is None:
        return 0
    shards, done = InStep(index.holders), 0
    notes = shards.each(index.holders, lambda holder: IdleStore.of(holder).swept())
    shards.require()
    moments = [note.moment for note in notes.values() if note.moment is not None]
    since = min(*moments, until) if len(moments) == len(notes) else None
    with timezone.override(None):  # as in a push
        removed = [note.removed for note in notes.values() if note.removed is not None]
        latest = max([*moments, *removed, until])
        if latest > until:  # the clock was set back: members that have left are awake again
            rows = _fallen_asleep(index, until, latest).values_list("pk", flat=True)
            back = list(rows[: PAGE_SIZE + 1])
            leave(index, back if len(back) <= PAGE_SIZE else [None], patience=patience)
        end: int | None = None
        while end != until and (limit is None or done < limit):
            size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - done)
            end = _end_of_page(index, since, until, size)
            rows = _fallen_asleep(index, since, end)
            # Not iterator(): on SQLite, marks can't be left while rows are being read, if others write.
            done += leave(index, list(rows.values_list("pk", flat=True)), patience=patience)
            noted = shards.each(notes, lambda one, end=end: IdleStore.of(one).note_swept(notes[one], end))  # type: ignore[misc]
            shards.require()
            if not all(noted.values()):
                break
            since = end
    return done


def _end_of_page(index: IdleIndex, since: int | None, until: int, size: int) -> int:
    """Return the time at which the last of the next ``size`` members was last seen."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = _fallen_asleep(index, since, until).order_by(path).values_list(fastest(index, path), flat=True)
    moment = next(iter(rows[size - 1 : size]), until)
    if isinstance(moment, datetime):
        return MOMENT.whole(moment)
    return moment if isinstance(moment, int) else until  # one that Python has none for: all at once


def _fallen_asleep(index: IdleIndex, since: int | None, until: int) -> QuerySet[Any]:
    """Return the rows, last seen after ``since`` and up to ``until``, that would be ranked if they were awake."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = (
        index.get_queryset()
        .using(index.get_using())
        .order_by()
        .filter(**{f"{path}__lte": MOMENT.value(until)})
    )
    return rows if since is None else rows.filter(**{f"{path}__gt": MOMENT.value(since)})


def see(index: IdleIndex, missing: Sequence[Any], due: Sequence[Any]) -> None:
    """Write to the column that members were seen now: ``due`` ones, if a transaction is open after that; and
    ``missing`` ones, which aren't ranked and are pushed then, unless one is open. Raises
    :exc:`~django_zrank.IndexUnavailable` if rows are locked."""
    using = index.get_using()
    if due and connections[using].in_atomic_block:
        transaction.on_commit(partial(_see, index, (), due), using=using, robust=True)
        due = ()
    # A transaction's snapshot may be old, and what it reads of its own may be rolled back.
    if is_open(connections[using]):
        missing = ()
    if missing or due:
        _see(index, missing, due)


def _see(index: IdleIndex, missing: Sequence[Any], due: Sequence[Any]) -> None:
    try:
        with without_waiting(connections[index.get_using()]):
            locked = write_seen(index, [*missing, *due])
            if missing:
                push(index, missing)
    except Busy as error:
        raise IndexUnavailable(f"Index {index.name!r}: the database is locked: {error}") from error
    if locked:
        names = ", ".join(map(str, locked[:5]))
        raise IndexUnavailable(
            f"Index {index.name!r}: {names} can't be touched: another transaction has locked the row"
        )


def write_seen(index: IdleIndex, pks: Iterable[Any]) -> list[Any]:
    """Write to the column of rows that they were seen now, and let it rest. Return those that stay locked, and are left
    as they are.

    A later time in the column is kept. What a constraint of the database refuses is logged, and lost.

    Raises :exc:`~django_zrank.exceptions.Busy` if SQLite is locked.
    """
    todo, deadline = list(pks), monotonic() + _PATIENCE
    while True:
        locked: list[Any] = []
        for chunk in batched(todo, _STATEMENT):
            began = monotonic()
            found = _write(index, chunk)
            locked += found
            texts = [index.to_text(pk) for pk in chunk if pk not in found]
            # From the time in the column, which is older the longer the write has waited.
            rest = index.awake.rest - timedelta(seconds=monotonic() - began)  # type: ignore[union-attr]
            for holder, own in index.place(texts).items() if rest > _NOW else ():
                IdleStore.of(holder).rest_members(own, rest)
        if not locked or monotonic() >= deadline:
            return locked
        todo = locked
        sleep(_PAUSE)


def _write(index: IdleIndex, pks: list[Any]) -> list[Any]:
    try:
        return briefly(index.get_using(), lambda: _update(index, pks), patience=_PATIENCE)
    except (DataError, IntegrityError) as error:
        if len(pks) > 1:
            return [pk for one in pks for pk in _write(index, [one])]
        logger.error("Index %r: the database refuses the time of %s: %s", index.name, *pks, error)
        return []


def _update(index: IdleIndex, pks: list[Any]) -> list[Any]:
    using, name = index.get_using(), index.seen_field.name  # type: ignore[union-attr]
    rows = every_row(index.model, using).filter(pk__in=pks)
    skips = connections[using].features.has_select_for_update_skip_locked
    # Don't wait for a lock whose holder may have been stopped, nor in a deadlock.
    lock = rows.select_for_update(skip_locked=True) if skips else rows.select_for_update(nowait=True)
    free = set(lock.values_list("pk", flat=True))
    now = TimeAgo(_NOW)
    rows.filter(Q(**{name: None}) | Q(**{f"{name}__lt": now}), pk__in=free).update(**{name: now})
    return list(rows.exclude(pk__in=free).values_list("pk", flat=True)) if len(free) < len(pks) else []
