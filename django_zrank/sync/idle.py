"""Sweeps, which remove idle members from the rankings; and touches, which are written to their column."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from django.db.models import Q, QuerySet

from ..codec.awake import MOMENT, TimeAgo
from ..index import RankIndex
from ..members import batched
from ..models import Generation
from ..store import Epoch, Store, Swept
from .push import begin, push
from .reach import Reach
from .rows import fastest
from .seen import carry_touches
from .transactions import PATIENCE, refuse_transaction

__all__ = ["asleep_since", "sweep", "unswept", "write_touches"]

PAGE_SIZE: Final = 2000
"""Members of one query of a sweep."""

_BATCH_SIZE: Final = 500
"""Members whose touches are written at once."""


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
    """Remove the members that fell asleep since the last sweep, at most ``limit``. Return their number.

    As in a push, a token is taken before rows are read. Rows come in the order in which they were last seen. The server
    that took the removals also notes how far they got: if a sweep is killed, or its server loses it, the next sweep
    removes the same members again.

    Raises as ``flush()`` does.
    """
    refuse_transaction(index.get_using(), "A sweep")
    until = asleep_since(index)
    return 0 if until is None else Reach(index).total(partial(_sweep, until, patience=patience), limit)


def _sweep(until: int, part: RankIndex, *, limit: int | None, patience: float) -> int:
    index, store, done = part.whole, Store.of(part), 0
    path = index.awake.path  # type: ignore[union-attr]
    while limit is None or done < limit:
        since, epoch = store.swept(), begin(part, store)
        rest = PAGE_SIZE if limit is None else limit - done
        size = min(PAGE_SIZE, rest * len(index.parts))  # they include rows of other parts
        rows = _fallen_asleep(index, since, until).order_by(path, "pk")
        page = list(rows.values_list("pk", fastest(index, path))[:size])
        if not page:
            break
        texts = [index.to_text(pk) for pk, _ in page]
        own = index.split(texts).get(part, [])[:rest]
        _remove(part, store, epoch, own, patience)
        last = texts.index(own[-1]) if len(own) == rest else -1
        moment = page[last][1]
        moment = moment if isinstance(moment, int) else MOMENT.whole(moment)
        if not store.note_swept(since, moment, texts[last]):
            break
        done += len(own)
    return done


def _remove(part: RankIndex, store: Store, epoch: Epoch, texts: list[str], patience: float) -> None:
    """Remove members whose rows were found asleep after ``epoch`` was taken. Those that were touched or written since
    are pushed instead."""
    if not texts:
        return
    # Before the removal, so that a member that was touched isn't removed even for a moment.
    again = set(carry_touches(part, store, texts, patience=patience))
    applied = store.apply_changes(epoch, ((text, None, b"") for text in texts if text not in again))
    again.update(texts if applied is None else map(bytes.decode, applied.refused))
    # After it, as in a push: a touch in between found the member ranked, so nothing else ranks it again.
    again.update(carry_touches(part, store, texts, patience=0.0))
    if again:
        push(part.whole, list(map(part.from_text, again)))


def _fallen_asleep(index: RankIndex, since: Swept, until: int) -> QuerySet[Any]:
    """Return the rows, last seen up to ``until`` and not swept yet, that would be ranked if they were awake."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = index.get_queryset().using(index.get_using()).filter(**{f"{path}__lte": MOMENT.value(until)})
    if since.moment is None:
        return rows
    moment = MOMENT.value(since.moment)
    later = Q(**{f"{path}__gt": moment})
    if not since.member:
        return rows.filter(later)
    # The first condition can use a database index.
    return rows.filter(**{f"{path}__gte": moment}).filter(later | Q(pk__gt=index.from_text(since.member)))


def unswept(index: RankIndex, pks: Iterable[Any]) -> set[Any]:
    """Return those of ``pks`` that are asleep but not swept yet."""
    found: set[Any] = set()
    until = asleep_since(index)
    if until is not None:
        for part, own in index.split(pks, index.to_text).items():
            rows = _fallen_asleep(index, Store.of(part).swept(), until)
            for chunk in batched(own, _BATCH_SIZE):
                found.update(rows.filter(pk__in=chunk).values_list("pk", flat=True))
    return found


def write_touches(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Write the touches that are due, at most ``limit``. Return their number.

    The column only moves forward: so a touch may be written twice, and any number of processes may do this at once.
    """
    if index.seen_field is None:
        return 0
    store, done = Store.of(index), 0
    while limit is None or done < limit:
        members = store.due_touches(_BATCH_SIZE if limit is None else min(_BATCH_SIZE, limit - done))
        if not members:
            break
        begin(index, store)  # raises if Redis holds the build of another database
        touched = carry_touches(index, store, members, patience=patience)
        store.settle_touches([member for member in members if member not in touched], {}, index.awake.rest)  # type: ignore[union-attr]
        done += len(members)
    return done
