"""Sweeps, which leave marks for the members that fell asleep."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone

from ..codec.awake import MOMENT, TimeAgo
from ..index import RankIndex
from ..models import Generation
from ..store import Store
from .marks import leave
from .reach import Reach
from .rows import fastest
from .transactions import PATIENCE, refuse_transaction

PAGE_SIZE: Final = 2000
"""Members of one query of a sweep."""


def asleep_since(index: RankIndex) -> int | None:
    """Return the latest time, in microseconds of the database's clock, at which a row that is asleep now was last seen.
    None if the index doesn't declare ``idle``, or if the database notes no build yet."""
    if index.awake is None:
        return None
    names = [part.name for part in index.parts]
    rows = Generation.objects.using(index.get_using()).filter(index__in=names)
    found = rows.annotate(asleep=TimeAgo(index.awake.period)).values_list("asleep", flat=True).first()
    return None if found is None else MOMENT.whole(found)


def sweep(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Leave marks for the members that fell asleep since the last sweep, about ``limit``. Return their number.

    Redis notes how far that got, after the marks are committed: if a sweep is killed, or the server loses the note, the
    next sweep leaves the same marks again.

    Raises as ``flush()`` does.
    """
    refuse_transaction(index.get_using(), "A sweep")
    until = asleep_since(index)
    if until is None:
        return 0
    reach, done = Reach(index), 0
    notes = reach.each(index.parts, lambda part: Store.of(part).swept())
    reach.require()
    moments = [note.moment for note in notes.values() if note.moment is not None]
    since = min(*moments, until) if len(moments) == len(notes) else None
    with timezone.override(None):  # as in a push
        if moments and max(moments) > until:  # the clock was set back: members that have left are awake again
            rows = _fallen_asleep(index, until, max(moments)).values_list("pk", flat=True)
            back = list(rows[: PAGE_SIZE + 1])
            leave(index, back if len(back) <= PAGE_SIZE else [None], patience=patience)
        end: int | None = None
        while end != until and (limit is None or done < limit):
            size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - done)
            end = _end_of_page(index, since, until, size)
            rows = _fallen_asleep(index, since, end)
            done += leave(index, rows.values_list("pk", flat=True).iterator(), patience=patience)
            noted = reach.each(notes, lambda part, end=end: Store.of(part).note_swept(notes[part], end))  # type: ignore[misc]
            reach.require()
            if not all(noted.values()):
                break
            since = end
    return done


def _end_of_page(index: RankIndex, since: int | None, until: int, size: int) -> int:
    """Return the time at which the last of the next ``size`` members was last seen."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = _fallen_asleep(index, since, until).order_by(path).values_list(fastest(index, path), flat=True)
    moment = next(iter(rows[size - 1 : size]), until)
    if isinstance(moment, datetime):
        return MOMENT.whole(moment)
    return moment if isinstance(moment, int) else until  # one that Python has none for: all at once


def _fallen_asleep(index: RankIndex, since: int | None, until: int) -> QuerySet[Any]:
    """Return the rows, last seen after ``since`` and up to ``until``, that would be ranked if they were awake."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = (
        index.get_queryset()
        .using(index.get_using())
        .order_by()
        .filter(**{f"{path}__lte": MOMENT.value(until)})
    )
    return rows if since is None else rows.filter(**{f"{path}__gt": MOMENT.value(since)})
