"""Members that fall asleep leave the rankings; touches are carried to their column."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import Q, QuerySet

from ..codec.awake import MOMENT, TimeAgo
from ..members import batched
from ..models import Generation
from ..store import Epoch, Store, Swept
from .patience import PATIENCE
from .push import begin, push
from .reach import Reach
from .rows import fastest
from .seen import carry_touches
from .transactions import refuse_transaction

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["asleep_since", "sweep", "unswept", "write_touches"]

PAGE_SIZE: Final = 2000
"""Members that a sweep looks for at once."""

_BATCH_SIZE: Final = 500
"""Members whose touches are written at once."""


def asleep_since(index: RankIndex) -> int | None:
    """The time, in microseconds, up to which rows that were last seen are asleep now, by the database's clock. None:
    the database notes no build yet, or no row of the index sleeps."""
    if index.awake is None:
        return None
    names = [part.name for part in index.parts]
    rows = Generation.objects.using(index.get_using()).filter(index__in=names)
    found = rows.annotate(asleep=TimeAgo(index.awake.period)).values_list("asleep", flat=True).first()
    return None if found is None else MOMENT.whole(found)


def sweep(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Remove the members that fell asleep since the last sweep, or ``limit`` of them. Returns how many.

    They are found by their column, in the order in which they were last seen, after a token is taken, as in a push: so
    the database decides, and the guards of every write hold. How far this came is noted on the server that took it.
    Killed before that, the next sweep removes the same members again; and a server that lacks a removal lacks its note,
    too. A member that is ranked again was awake then: rebuilds and pushes are judged by the same clock.

    Raises as ``flush()`` does.
    """
    refuse_transaction(connections[index.get_using()], "A sweep")
    until = asleep_since(index)
    return 0 if until is None else Reach(index).total(partial(_sweep, until, patience=patience), limit)


def _sweep(until: int, part: RankIndex, *, limit: int | None, patience: float) -> int:
    """Sweep one part."""
    index, store, done = part.whole, Store(part.name, part.layout, part.rule), 0
    while limit is None or done < limit:
        since, epoch = store.swept(), begin(part, store)
        rest = PAGE_SIZE if limit is None else limit - done
        size = min(PAGE_SIZE, rest * len(index.parts))  # rows of other parts are among them
        rows = _fallen_asleep(index, since, until)
        path = index.awake.path  # type: ignore[union-attr]
        page = list(rows.order_by(path, "pk").values_list("pk", fastest(index, path))[:size])
        if not page:
            break
        texts = list(map(index.to_text, (pk for pk, _ in page)))
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
    """Remove members whose rows were found asleep after ``epoch`` was taken. Those that were touched, or written since,
    are pushed instead."""
    if not texts:
        return
    # First of all, so that a member that was touched isn't removed even for a moment.
    touched = dict.fromkeys(_carry(part, store, texts, patience))
    changes = ((text, None, b"") for text in texts if text not in touched)
    applied = store.apply_changes(epoch, changes)
    again = touched | dict.fromkeys(texts if applied is None else map(bytes.decode, applied.refused))
    # A touch that came before its removal may have returned: as in a push.
    again |= dict.fromkeys(_carry(part, store, texts, 0.0))
    if again:
        push(part.whole, list(map(part.from_text, again)))


def _fallen_asleep(index: RankIndex, since: Swept, until: int) -> QuerySet[Any]:
    """Return the rows that would be ranked if they were awake, last seen up to ``until``, and not swept yet."""
    path = index.awake.path  # type: ignore[union-attr]
    rows = index.get_queryset().using(index.get_using()).filter(**{f"{path}__lte": MOMENT.value(until)})
    if since.moment is None:
        return rows
    moment = MOMENT.value(since.moment)
    later = Q(**{f"{path}__gt": moment})
    if not since.member:
        return rows.filter(later)
    # The first condition is implied by the second, which no index serves.
    return rows.filter(**{f"{path}__gte": moment}).filter(later | Q(pk__gt=index.from_text(since.member)))


def unswept(index: RankIndex, pks: Iterable[Any]) -> set[Any]:
    """Return those of ``pks`` that are asleep, and that no sweep has reached."""
    found: set[Any] = set()
    until = asleep_since(index)
    if until is not None:
        for part, own in index.split(pks, index.to_text).items():
            rows = _fallen_asleep(index, Store(part.name).swept(), until)
            for chunk in batched(own, _BATCH_SIZE):
                found.update(rows.filter(pk__in=chunk).values_list("pk", flat=True))
    return found


def write_touches(index: RankIndex, *, limit: int | None = None, patience: float = PATIENCE) -> int:
    """Write the touches whose columns have rested, or ``limit`` of them. Returns how many.

    A column only moves forward, so after a process was killed between writing and settling another may write the same
    again, and any number may run at once.
    """
    if index.seen_field is None:
        return 0
    store, done = Store(index.name), 0
    while limit is None or done < limit:
        members = store.due_touches(_BATCH_SIZE if limit is None else min(_BATCH_SIZE, limit - done))
        if not members:
            break
        begin(index, store)  # raises where Redis holds the build of another database
        touched = _carry(index, store, members, patience)
        store.settle_touches([member for member in members if member not in touched], {}, index.awake.rest)  # type: ignore[union-attr]
        done += len(members)
    return done


def _carry(index: RankIndex, store: Store, members: list[str], patience: float) -> list[str]:
    """Write the touches of members. Returns those that had been touched."""
    return carry_touches(index, store, members, patience=patience) if index.seen_field else []
