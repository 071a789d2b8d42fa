"""Members that were seen: their columns tell when."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

from django.db import DataError, IntegrityError, connections, transaction
from django.db.models import Q

from ..capture.watched_tables import every_row
from ..iteration import batched
from ..sync.push import push_after
from ..transactions import briefly, is_open
from ..windows.lookup import TimeAgo
from .declaration import IdleIndex
from .store import IdleStore

logger = logging.getLogger("django_zrank.sync")

_STATEMENT: Final = 200
"""Rows of one write to the column: SQLite may not take more than 999 parameters."""

_PATIENCE: Final = 0.2
"""Seconds for which a caller waits for rows that are locked."""

_PAUSE: Final = 0.02

_NOW: Final = timedelta(0)


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
    push_after(index, lambda: write_seen(index, [*missing, *due]), missing)


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
