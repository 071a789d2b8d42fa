"""Sweeps: they leave marks for members whose rows have left a window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from django.utils import timezone

from ..declaration import Index
from ..models import Build
from ..sync.in_step import InStep
from ..sync.marks import leave
from ..sync.rows import fastest
from ..transactions import PATIENCE, refuse_transaction
from .lookup import DatabaseClock
from .store import Swept, WindowStore
from .window import Window, windows_of

__all__ = ["PAGE_SIZE", "now_of", "sweep"]

PAGE_SIZE: Final = 2000
"""Rows of one query of a sweep."""


def now_of(index: Index) -> int | None:
    """Return the database's time, in microseconds; None if the database notes no build of an index yet."""
    names = [holder.name for holder in index.holders]
    rows = Build.objects.using(index.get_using()).filter(index__in=names)
    found = rows.annotate(now=DatabaseClock()).values_list("now", flat=True).first()
    return None if found is None else int(found)


def sweep(index: Index, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Leave marks for the members whose rows have left a window since the last sweep, about ``limit``. Return their
    number.

    Redis notes how far that got, after the marks are committed: if a sweep is killed, if another one begins, or if the
    server loses the note, the next sweep leaves the same marks again.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` if the marks can't be
    written for longer than ``patience`` seconds; and ``TransactionManagementError`` inside a transaction.
    """
    refuse_transaction(index.get_using(), "Looking for members that have left a window")
    windows, using = windows_of(index), index.get_using()
    if not windows or now_of(index) is None:
        return 0
    step, done = InStep(index.holders), 0
    notes = step.each(index.holders, lambda holder: WindowStore.of(holder).begin_sweep())
    step.require()
    until: Any = now_of(index)  # after the notes, which are later only if the clock was set back
    moments = [note.moment for note in notes.values() if note.moment is not None]
    since = min(*moments, until) if len(moments) == len(notes) else None
    with timezone.override(None):  # as in a push
        latest = max([*moments, *(note.read for note in notes.values() if note.read is not None), until])
        if latest > until:  # the clock was set back: what has left is inside again
            found = [window.members(using, until, latest, PAGE_SIZE + 1) for window in windows]
            back = list(dict.fromkeys(chain.from_iterable(found)))
            leave(index, back if len(back) <= PAGE_SIZE else [None], patience=patience)
        end: int | None = None
        while end != until and (limit is None or done < limit):
            size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - done)
            # Mostly, few have left, and one query of each window tells.
            found = [window.members(using, since, until, size + 1) for window in windows]
            end = until
            if max(map(len, found)) > size:
                end = min(_end_of_page(index, window, since, until, size) for window in windows)
                found = [window.members(using, since, end) for window in windows]
            done += leave(index, dict.fromkeys(chain.from_iterable(found)), patience=patience)
            noted = step.each(notes, partial(_note, notes, end, until))
            step.require()
            if not all(noted.values()):
                break
            since = end
    return done


def _note(notes: Mapping[Index, Swept], moment: int, now: int, holder: Index) -> bool:
    return WindowStore.of(holder).note_swept(notes[holder], moment, now)


def _end_of_page(index: Index, window: Window, since: int | None, until: int, size: int) -> int:
    """Return the time at which the last of the next ``size`` values leaves a window."""
    rows = window.leaving(index.get_using(), since, until).order_by(window.path)
    values = rows.values_list(fastest(index, window.path), flat=True)
    value = next(iter(values[size - 1 : size]), None)
    try:
        return until if value is None else window.end(value)
    except (AttributeError, TypeError, ValueError):  # one that Python has none for: all at once
        return until
