"""Working off marks: whatever was committed and not pushed, or pushed and lost."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, DataError, InterfaceError, OperationalError, connections

from ..conf import get_settings
from ..exceptions import Busy, ZRankError
from ..models import Mark
from ..recent import Recent
from ..signals import drained
from ..store import Store
from .marks import Seen, forget_batches, newest_mark, next_marks, replayed_marks, unmark
from .patience import PATIENCE, without_waiting
from .push import push
from .rebuild import rebuild
from .transactions import refuse_transaction
from .watched_tables import watched_tables

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["drain", "drain_soon"]

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 5000

_SHARE: Final = 1000
"""The most marks, and members, that a process works off after a push: a request waits for it."""

_REST: Final = 20
"""Back-off: 20 times the last drain's duration, at most 60 s."""


def drain(
    index: RankIndex, *, limit: int | None = None, batch_size: int = BATCH_SIZE, patience: float = PATIENCE
) -> int:
    """Work off the marks of ``index`` that wait now, or ``limit`` of them. Returns how many.

    A mark for all members (of a table that was truncated) takes a rebuild. What is left while it runs waits for
    the next drain: this one ends, however many write.

    Marks seen, token, rows read, applied, unmarked: the order is the proof. A mark that is seen belongs to a committed
    change, so what is read after that holds it; and Redis refuses to put over it what was read before it was
    written (see :func:`~django_zrank.sync.push.push`). Only then is the mark worked off. Killed anywhere in
    between, the marks still wait. Any number of drains may run at once. One that can't be worked off waits on alone.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` where another process keeps the
    row of the generation locked for longer than ``patience`` seconds; and ``TransactionManagementError`` inside a
    transaction, where an old snapshot might be read.
    """
    refuse_transaction(connections[index.get_using()], "Draining")
    return _Drain(index, batch_size, patience).run(limit)


class _TooMany(Exception):
    """Marks lead to more members than this drain's share."""


class _Drain:
    """One pass over the marks that wait when it begins. ``share``: leave those for all members, and those that lead to
    more members than this."""

    def __init__(self, index: RankIndex, batch_size: int, patience: float, share: int | None = None) -> None:
        self.index, self.batch_size, self.patience, self.share = index, batch_size, patience, share
        self.store = Store(index.name, index.layout)
        self.stuck: list[int] = []
        """The marks that can't be worked off."""

    def run(self, limit: int | None) -> int:
        behind = self.store.check_health().behind
        done, last, until = 0, 0, newest_mark(self.index)
        while limit is None or done < limit:
            size = self.batch_size if limit is None else min(self.batch_size, limit - done)
            marks = next_marks(self.index, last, until, size, everybody=self.share is None)
            if not marks:
                break
            last = marks[-1][0]
            done += self.work_off(marks)
        if (
            behind not in ("", "rebuild")
            and not replayed_marks(self.index).exclude(id__in=self.stuck).exists()
        ):
            self.store.finish_replay(behind)
        _purge(self.index, self.store)
        return done

    def work_off(self, marks: list[Seen]) -> int:
        """One batch. Where it fails for a reason of its own it is halved, until the mark at fault is alone."""
        try:
            members = self.apply(marks)
        except DataError as error:
            return self.halve(marks, error)
        except (ZRankError, DatabaseError, InterfaceError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a declaration or a value makes of it
            return self.halve(marks, error)
        if members is None:
            return 0
        drained.send(self.index, marks=len(marks), members=members)
        return len(marks)

    def halve(self, marks: list[Seen], error: Exception) -> int:
        if len(marks) > 1:
            half = len(marks) // 2
            return self.work_off(marks[:half]) + self.work_off(marks[half:])
        if isinstance(error, _TooMany):
            return 0
        pk, via, member = marks[0]
        mark = Mark(index=self.index.name, via=via, member=member)
        logger.error("Index %r: mark %d (%s) can't be worked off", self.index.name, pk, mark, exc_info=error)
        self.stuck.append(pk)
        return 0

    def apply(self, marks: list[Seen]) -> int | None:
        """Write what ``marks`` are about, and unmark. Returns how many members; None where they wait on, because the
        database knows of another build or term by now."""
        index = self.index
        if any(member is None for _, _, member in marks):  # a truncated table: nothing tells who was in it
            members = rebuild(index, polite=True)  # one that runs already may have read before these marks
            health = self.store.check_health()
            generation, term, version = health.generation, health.term, int(health.applied)
        else:
            pks = self.members_of(marks)
            members = len(pks)
            epoch, version = push(index, pks)
            generation, term = epoch.generation, epoch.term
        known = unmark(
            index, marks, version, generation=generation, term=int(term or 0), patience=self.patience
        )
        return members if known else None

    def members_of(self, marks: list[Seen]) -> set[Any]:
        """The primary keys of the members that ``marks`` are about."""
        index = self.index
        pks: set[Any] = set()
        for text in {member for _, via, member in marks if via is None}:
            # What no row's key can be is no member: a row that points at rows of several models, by a key as text.
            with suppress(ValueError):
                pks.add(index.from_text(text))
        if connections[index.get_using()].vendor == "sqlite":
            # It has no such rows, and can't even be asked for them.
            pks = {pk for pk in pks if not isinstance(pk, int) or -(2**63) <= pk < 2**63}
        if any(via is not None for _, via, _ in marks):
            for source in watched_tables(index):
                texts = {str(member) for _, via, member in marks if via is not None and via == source.via}
                found = list(source.members_at(texts, index.get_using(), limit=self.share)) if texts else []
                if self.share is not None and len(found) >= self.share:
                    raise _TooMany  # there may be more
                pks.update(found)
        return pks


_PURGE_EVERY: Final = 60.0
_done: Recent[bool] = Recent()
"""By its name and the index: what this process did lately."""


def _due(what: str, index: RankIndex, seconds: float) -> bool:
    """Return True if ``seconds`` have passed since this process did this for ``index``."""
    return not _done.get((what, index.name)) and _done.keep((what, index.name), True, seconds)


def _purge(index: RankIndex, store: Store) -> None:
    """Delete batches that are older than a replay may reach back, and keys of generations that were replaced."""
    if not _due("purge", index, _PURGE_EVERY):
        return
    store.unlink_doomed()
    forget_batches(index, get_settings().keep_marks)


def drain_soon(index: RankIndex) -> None:
    """Work off a batch, at most once a second: called after a push, and never waits for a lock.

    It may take long where millions of marks of another index, which nobody drains, must be walked past. Then the
    next time comes later.
    """
    connection = connections[index.get_using()]
    if connection.in_atomic_block or not _due("drain", index, 1.0):
        return
    began = monotonic()
    try:
        with without_waiting(connection):
            _Drain(index, BATCH_SIZE, 0.0, share=_SHARE).run(_SHARE)
    except (Busy, OperationalError) as error:  # the marks wait for the next one
        logger.debug("Index %r: not drained. %s", index.name, error)
    taken = monotonic() - began
    _done.keep(("drain", index.name), True, max(1.0 - taken, min(60.0, _REST * taken)))
