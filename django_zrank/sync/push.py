"""Pushes: members are written to Redis as the writer database has them now."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from secrets import token_hex
from threading import local
from time import monotonic
from typing import Any, Final

from django.db import connections

from .. import builds
from ..codec.units import Number
from ..declaration import Index
from ..exceptions import Busy, IndexUnavailable, IndexUnhealthy, NotBuilt
from ..extension import timed
from ..queries.steps import Steps
from ..recent import Recent
from ..signals import push_failed
from ..signals import pushed as members_pushed
from ..store import Epoch, Store, trace_of
from ..transactions import holds_snapshot, require_synced, require_writable, without_waiting
from . import rows
from .in_step import InStep, breaker
from .marks import Written

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000

_MEMBER: Final = itemgetter(0)
"""The member of a change."""

_SLOW: Final = 1.5
"""Seconds of Redis's answers to one push after which the next ones are suspended, although it succeeded."""

_ATTEMPTS: Final = 10
"""The most attempts at a write while rebuilds begin and end."""

_REFUSALS: Final = 2
"""After two refusals a newer write has won, which read its row after the change was committed (docs/protocol.md)."""

_KEPT: Final = 1.0
"""Seconds for which saves of a thread are pushed under the token that one of them has taken, or left. A token only has
to be older than the read of the rows: an older one is refused more often, but nothing is ever wrongly written."""

_EARLY: Final = -1
"""The number of refusals of an index that is written under a token from before the commit: one under that says nothing,
and isn't one of the two. Rows may be read as they are on any connection that sees the commit: whatever it doesn't see
was written later, and refuses this write."""


class _KeptEpochs(Recent[tuple[float, Epoch]], local):
    """The epochs that each thread keeps, and since when, by the names of indexes and of their databases."""


_kept = _KeptEpochs()


def push(index: Index, pks: Iterable[Any], *, noted: bool = False) -> Push:
    """Write the members ``pks`` as the database has them; those that aren't ranked are removed. ``noted``: true if
    marks are to be deleted for this.

    Optimistic concurrency: a fencing token, the version of the newest write, is taken before the rows are read. Redis
    refuses a member that was written since, and its row is read once more.

    Raises, if nothing could be written, :exc:`~django_zrank.IndexUnavailable`, or
    :exc:`~django_zrank.exceptions.IndexUnhealthy` if the database doesn't know the build in Redis.
    """
    push = Push(InStep(index.holders), noted=noted)
    push.write(index.place(pks, index.to_text))
    if not push.written:
        push.step.require(push.step.failed)
    return push


def push_after(index: Index, prepare: Callable[[], Collection[Any]], pks: Collection[Any]) -> None:
    """Push members for a caller that doesn't wait for locks, after ``prepare()``, which may write to rows and returns
    members whose rows stay locked. Raises :exc:`~django_zrank.IndexUnavailable` if there are any."""
    try:
        with without_waiting(connections[index.get_using()]):
            locked = prepare()
            if pks:
                push(index, pks)
    except Busy as error:
        raise IndexUnavailable(f"Index {index.name!r}: the database is locked: {error}") from error
    if locked:
        names = ", ".join(map(str, [*locked][:5]))
        raise IndexUnavailable(
            f"Index {index.name!r}: {names} can't be touched: another transaction has locked the row"
        )


class Push:
    """A push of members to the indexes that hold them, all of one database, and its result. The indexes are written in
    step. ``saved``: the time of the last write of what this connection has just committed, by the clock of the process;
    None for other pushes. ``noted``: true if marks are to be deleted for this."""

    def __init__(self, step: InStep, *, saved: float | None = None, noted: bool = False) -> None:
        self.step, self.saved = step, saved
        self.using = step.indexes[0].get_using()
        self.nonce = token_hex(4) if noted else ""
        self.epochs: dict[Index, Epoch] = {}
        """The epoch of the next write to each index: its token is the version of the last one."""

        self.written: dict[Index, Written] = {}
        """The indexes to which all of their members were written."""

    def write(self, members: Mapping[Index, Iterable[Any]], *, until: float = math.inf) -> None:
        """Write members. ``until``: the time after which no further batch is begun."""
        size = min(_BATCH, connections[self.using].features.max_query_params or _BATCH)
        for todo in _batches(members, size):
            if monotonic() >= until:
                number = sum(map(len, todo.values()))
                logger.warning("%d members or more were not pushed, as Redis was slow to answer", number)
                break
            self.write_batch(todo)
            failed = self.step.failed
            done = {
                index: pks for index, pks in todo.items() if index in self.written and index not in failed
            }
            for declared, pks in _declared(done).items():
                if members_pushed.has_listeners(declared):
                    members_pushed.send_robust(declared, members=pks)
        for index in self.step.failed:
            self.written.pop(index, None)

    def write_batch(self, todo: Mapping[Index, list[Any]]) -> None:
        """Write members until all are written here or by others; or, after a save, until only a drain can read them."""
        step, refusals = self.step, defaultdict[Index, int](int)
        if self.saved is not None:
            for index in todo.keys() - self.epochs.keys():
                since, kept = _kept.get((index.name, self.using)) or (math.inf, None)
                if kept and since <= self.saved:
                    self.epochs[index], refusals[index] = kept, _EARLY
        for _ in range(_ATTEMPTS):
            if new := [index for index in todo if index not in self.epochs]:
                if len(new) > 1:
                    builds.prefetch(new)
                self.epochs.update(step.together({index: self.begin(index) for index in new}))
            # No row is read for an index that has failed.
            asked = {index: pks for index, pks in todo.items() if index not in step.failed}
            is_early = all(refusals[index] == _EARLY for index in asked)
            if self.saved is not None and not is_early and holds_snapshot(connections[self.using]):
                return
            found = self.read(asked, is_early=is_early)
            again = step.together({index: self.apply(index, own, refusals) for index, own in found.items()})
            todo = {index: pks for index, pks in again.items() if pks}
            if not todo:
                return
        for index in todo:
            step.failed[index] = IndexUnavailable(
                f"Index {index.name!r}: rebuilds began too often for a write to succeed"
            )

    def begin(self, index: Index) -> Steps[Epoch]:
        epoch = known(index, (yield from self.step.stores[index].beginning_write()))
        if self.saved is not None:
            _kept.keep((index.name, self.using), (monotonic(), epoch), _KEPT)
        return epoch

    def read(self, todo: Mapping[Index, list[Any]], *, is_early: bool = False) -> dict[Index, list[Any]]:
        """Return what is to be written to each index. The rows of a declaration are read once, after all tokens; those
        of several declarations, too, if one statement can read them. ``is_early``: true if the tokens are from before
        the commit."""
        changes: dict[Index, list[Any]] = {index: [] for index in todo}
        members = _declared(todo)
        require_synced(self.using)
        together = read_together(members)
        for declared, pks in members.items():
            further = timed(declared)
            before = {one: one.before_rows(declared) for one in further} if self.saved is None else {}
            found = self.find(declared, pks, together.get(declared))
            changes |= found
            if further and any(score is None for own in found.values() for _, score, _ in own):
                asked = [index for index in todo if index.declared is declared]
                for one in further:
                    if note := one.removing(declared, before.get(one)):
                        self.step.each(asked, lambda index, note=note: note(self.step.stores[index]))  # type: ignore[misc]
        if not is_early:  # the connection may lead to a former primary
            require_writable(self.using)
        return changes

    def find(
        self, declared: Index, pks: list[Any], found: Iterable[Sequence[Any]] | None = None
    ) -> dict[Index, list[Any]]:
        """Return the changes of members, by the indexes that hold them. ``found``: their rows; None to read them."""
        stores = [self.step.stores[holder] for holder in declared.holders]
        changes = read(declared, pks, *stores) if found is None else changes_of(declared, pks, found, *stores)
        return declared.place(changes, _MEMBER)

    def apply(self, index: Index, changes: list[Any], refusals: dict[Index, int]) -> Steps[list[Any]]:
        """Return the members to be read again."""
        epoch = self.epochs.get(index)
        former = self.written.get(index)
        # What was written under another term is not noted (unmark()).
        is_continued = former is not None and epoch is not None and str(former.term) == epoch.term
        before = trace_of(former.version, self.nonce) if former and is_continued else ""
        result = epoch and (
            yield from self.step.stores[index].applying_changes(
                epoch, changes, nonce=self.nonce, before=before
            )
        )
        # No token was taken yet, or another build is live by now.
        if epoch is None or result is None:
            self.epochs.pop(index, None)
            refusals[index] = 0
            return [index.from_text(text) for text, *_ in changes]
        first = former or epoch
        self.written[index] = Written(
            first.build, int(first.term), result.version, self.nonce, epoch.required
        )
        epoch = self.epochs[index] = epoch._replace(token=str(result.version), newest=result.newest)
        if self.saved is not None:
            _kept.replace((index.name, self.using), (monotonic(), epoch))
        refusals[index] += 1
        if refusals[index] < _REFUSALS:
            return list(map(index.from_bytes, result.refused))
        return []


def _batches(members: Mapping[Index, Iterable[Any]], size: int) -> Iterator[dict[Index, list[Any]]]:
    """Yield members in batches, each of at most ``size`` of each declared index: in the same order, so that the rows of
    members that several indexes rank are read once."""
    placed: defaultdict[Index, list[tuple[Index, Any]]] = defaultdict(list)
    for index, own in members.items():
        placed[index.declared] += [(index, pk) for pk in own]
    for at in range(0, max(map(len, placed.values()), default=0), size):
        todo: defaultdict[Index, list[Any]] = defaultdict(list)
        for pairs in placed.values():
            for index, pk in pairs[at : at + size]:
                todo[index].append(pk)
        yield todo


def _declared(members: Mapping[Index, list[Any]]) -> dict[Index, list[Any]]:
    """Return members by the indexes that are declared, which have their rows."""
    found: dict[Index, list[Any]] = {}
    for index, pks in members.items():
        found.setdefault(index.declared, []).extend(pks)
    return found


def known(index: Index, epoch: Epoch) -> Epoch:
    """Return the epoch of a write whose rows are about to be read, if the database knows it.

    The database must know the build in Redis, and have trusted its server: otherwise a test, or a staging system with
    a copy of the settings, would write into the index of another database.
    """
    if not (index.declares(epoch.build) and index.declares(epoch.building)):
        raise NotBuilt(f"Index {index.name!r} is built, or being built, from another declaration")
    row = builds.recorded_as(index, *epoch[:2], epoch.term)
    if row is None:
        raise IndexUnhealthy(
            f"Index {index.name!r}: the build in Redis, or its server, is unknown to database {index.get_using()!r}. "
            "sync_zrank resolves this, unless Redis holds another project's index"
        )
    return epoch._replace(required=row.traces)


def forget(index: Index) -> None:
    """Let the next push to an index that was rebuilt read its queryset and its note again."""
    rows.forget()
    builds.forget(index)
    _kept.forget((index.name, index.get_using()))


def try_push(
    members: Mapping[Index, set[Any]], *, saved: float | None = None, until: float = math.inf
) -> list[Index]:
    """Push members of declared indexes, except to those whose breaker is open. Return the indexes that were written to,
    and that no watcher keeps in step. Redis's failures are logged and signalled, never raised. ``saved``: the time of
    the last write before the commit, by default now."""
    step = InStep(holder for index in members for holder in index.holders)
    placed = {
        holder: own
        for index, pks in members.items()
        for holder, own in index.place(pks, index.to_text).items()
    }
    asked = {index: placed[index] for index in step.reachable(placed)}
    if not asked:
        return []
    push = Push(step, saved=monotonic() if saved is None else saved)
    push.write(asked, until=until)
    for index, failure in step.failed.items():
        if isinstance(failure, (NotBuilt, IndexUnhealthy)):  # the server is there
            step.resume([index])
            breaker.refuse(index.declared.name, index.name, failure)
        else:
            step.suspend(index, failure)
        push_failed.send_robust(index.declared, error=failure, members=set(asked.get(index, ())))
    step.resume(push.written)
    for index in push.written:
        breaker.accept(index.declared.name, index.name)
    for server, seconds in step.waited.items():
        if seconds > _SLOW:
            server.trip(IndexUnavailable(f"Redis took {seconds:.1f} s to answer a push"))
    watched = {index.declared for index, epoch in push.epochs.items() if epoch.is_watched}
    return list({index.declared: None for index in push.written if index.declared not in watched})


def read_together(members: Mapping[Index, list[Any]]) -> dict[Index, Iterable[Sequence[Any]]]:
    """Return the rows of members of several indexes, of those that one statement can read."""
    return rows.select_together(members) if len(members) > 1 else {}


def read(index: Index, pks: Iterable[Any], *stores: Store) -> list[tuple[str, Number | None, bytes]]:
    """Return a :class:`~django_zrank.store.Change` of each member of ``pks``, as the writer database has it, and note
    in ``stores``, those of all its holders, what extensions read with the rows."""
    pks = list(pks)
    return changes_of(index, pks, rows.select_among(index, pks), *stores)


def changes_of(
    index: Index, pks: Iterable[Any], found: Iterable[Sequence[Any]], *stores: Store
) -> list[tuple[str, Number | None, bytes]]:
    """Return what :func:`read` does, of the rows that were ``found``."""
    for store in stores:
        store.noted.clear()
    # With the database's spelling of the key, which may find "bob" by "BOB".
    changes: dict[str, tuple[str, Number | None, bytes]] = {
        change[0]: change for change in rows.encode(index, found, stores)
    }
    for member in map(index.to_text, pks):
        if member not in changes:
            changes[member] = (member, None, b"")
    return list(changes.values())
