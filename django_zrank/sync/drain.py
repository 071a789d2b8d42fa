"""Working off marks: whatever was committed and not pushed, or pushed and lost."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, InterfaceError, connections

from ..conf import get_settings
from ..exceptions import ZRankError
from ..models import Mark
from ..signals import drained
from ..store import Store
from .marks import Seen, forget_batches, next_marks, unmark, waiting_marks
from .push import push
from .rebuild import rebuild
from .sources import sources_of
from .transactions import refuse_transaction

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["drain", "drain_soon"]

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 5000

_SHARE: Final = 1000
"""How many marks whoever has just pushed works off: a request waits for it."""

_REST: Final = 20
"""How many times as long as that took a process does not do it again, a minute at most."""


def drain(
    index: RankIndex, *, limit: int | None = None, batch_size: int = BATCH_SIZE, rebuilds: bool = True
) -> int:
    """Work off the marks of ``index`` that wait, or ``limit`` of them. Returns how many.

    A mark for all members (of a table that was truncated) takes a rebuild; without ``rebuilds`` it is left.

    Marks seen, rows read, applied, unmarked: the order is the proof. A mark that is seen belongs to a committed
    change, so what is read after that holds it; and Redis refuses to put over it what was read before it was
    written (see :func:`~django_zrank.sync.push.push`). Only then is the mark worked off. Killed anywhere in
    between, the marks still wait. Any number of drains may run at once.

    Raises :exc:`~django_zrank.IndexUnavailable`, and ``TransactionManagementError`` inside a transaction,
    where an old snapshot might be read.
    """
    using = index.get_using()
    refuse_transaction(connections[using], "Draining")
    store = Store(index.name, index.layout)
    behind = store.check_health().behind
    done, last = 0, 0
    while limit is None or done < limit:
        size = batch_size if limit is None else min(batch_size, limit - done)
        marks = next_marks(index, last, size, everybody=rebuilds)
        if not marks:
            break
        last = marks[-1][0]
        done += _work_off(index, store, marks)
    if behind not in ("", "rebuild") and not waiting_marks(index).exists():
        store.finish_replay(behind)
    _purge(index)
    return done


def _work_off(index: RankIndex, store: Store, marks: list[Seen]) -> int:
    """One batch. Where it fails for a reason of its own it is halved, until the mark at fault is alone."""
    try:
        members = _apply(index, store, marks)
    except (ZRankError, DatabaseError, InterfaceError):
        raise
    except Exception:
        if len(marks) == 1:
            pk, via, member = marks[0]
            mark = Mark(index=index.name, via=via, member=member)
            logger.exception("Index %r: the mark %d (%s) can't be worked off", index.name, pk, mark)
            return 0
        half = len(marks) // 2
        return _work_off(index, store, marks[:half]) + _work_off(index, store, marks[half:])
    if members is None:
        return 0
    drained.send(index, marks=len(marks), members=members)
    return len(marks)


def _apply(index: RankIndex, store: Store, marks: list[Seen]) -> int | None:
    """Write what ``marks`` are about, and unmark. Returns how many members; None where they wait on, because the
    database knows of another build or server by now."""
    if any(member is None for _, _, member in marks):  # a truncated table: nothing tells who was in it
        members = rebuild(index, polite=True)  # one that runs already may have read before these marks
        health = store.check_health()
        generation, run, place = health.generation, health.run, int(health.applied)
    else:
        pks = _members(index, marks)
        members = len(pks)
        epoch, place = push(index, pks)
        generation, run = epoch.generation, epoch.run
    return members if unmark(index, marks, place, generation=generation, run=run) else None


def _members(index: RankIndex, marks: list[Seen]) -> set[Any]:
    """The primary keys of the members that ``marks`` are about."""
    pks: set[Any] = set()
    for text in {member for _, via, member in marks if via is None}:
        # What no row's key can be is no member: a row that points at rows of several models, by a key as text.
        with suppress(ValueError):
            pks.add(index.from_text(text))
    if connections[index.get_using()].vendor == "sqlite":
        # It has no such rows, and can't even be asked for them.
        pks = {pk for pk in pks if not isinstance(pk, int) or -(2**63) <= pk < 2**63}
    if any(via is not None for _, via, _ in marks):
        for source in sources_of(index):
            texts = {str(member) for _, via, member in marks if via is not None and via == source.via}
            if texts:
                pks.update(source.members_at(texts, index.get_using()))
    return pks


_PURGE_EVERY: Final = 60.0
_next: dict[tuple[str, str], float] = {}


def _due(what: str, index: RankIndex, seconds: float) -> bool:
    """Whether this process has let ``seconds`` pass since it did this for ``index``."""
    now = monotonic()
    if now < _next.get((what, index.name), 0.0):
        return False
    _next[what, index.name] = now + seconds
    return True


def _purge(index: RankIndex) -> None:
    """Delete batches that are older than a replay may reach back."""
    if not _due("purge", index, _PURGE_EVERY):
        return
    forget_batches(index, time_ns() // 1000 - int(get_settings().keep_marks * 1_000_000))


def drain_soon(index: RankIndex) -> None:
    """Work off a batch, at most once a second: done by whoever has just pushed.

    It may take long where millions of marks of another index, which nobody drains, must be walked past. Then the
    next time comes later.
    """
    if connections[index.get_using()].in_atomic_block or not _due("drain", index, 1.0):
        return
    began = monotonic()
    drain(index, limit=_SHARE, rebuilds=False)
    ended, key = monotonic(), ("drain", index.name)
    _next[key] = max(_next[key], ended + min(60.0, _REST * (ended - began)))
