"""Pushes: members are written to Redis as the writer database has them now."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from time import monotonic
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.utils import timezone

from .. import notes
from ..exceptions import Busy, IndexUnavailable, IndexUnhealthy, NotBuilt
from ..index import RankIndex
from ..members import batched
from ..queries.query import Query
from ..signals import push_failed, unranked
from ..signals import pushed as members_pushed
from ..store import Epoch, Number, Store
from . import rows
from .reach import Reach
from .seen import write_seen
from .transactions import is_open, require_writable, without_waiting

__all__ = ["Pushed", "Written", "forget", "known", "push", "read", "try_push", "write"]

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000
_UNRANKED: Final = (None, b"")

_SLOW: Final = 1.5
"""Seconds of Redis's answers to one push after which the next ones are suspended, although it succeeded."""

_ATTEMPTS: Final = 10
"""The most attempts at a write while rebuilds begin and end."""

_REFUSALS: Final = 2
"""After two refusals a newer write has won, which read its row after the change was committed (docs/guarantees.md)."""


class Written(NamedTuple):
    """The state under which a part was written to, for the fence: the database must note the same."""

    generation: str
    term: int

    version: int
    """Of the last write."""


class Pushed(NamedTuple):
    written: dict[RankIndex, Written]
    """The parts to which all of their members were written."""

    astray: set[RankIndex]
    """The parts of members whose key was given in another spelling than the database's."""

    watched: set[RankIndex]
    """The indexes that a watcher keeps in step."""


def push(index: RankIndex, pks: Iterable[Any]) -> Pushed:
    """Write the members ``pks`` as the database has them; those that aren't ranked are removed.

    Optimistic concurrency: a fencing token, the version of the newest write, is taken before the rows are read. Redis
    refuses a member that was written since, and its row is read once more.

    Raises, if no part could be written to, :exc:`~django_zrank.IndexUnavailable`, or
    :exc:`~django_zrank.exceptions.IndexUnhealthy` if the database doesn't know the build in Redis.
    """
    reach = Reach(index)
    pushed = write(reach, index.split(pks, index.to_text))
    if not pushed.written:
        reach.require(reach.failed)
    return pushed


def write(
    reach: Reach, members: Mapping[RankIndex, Iterable[Any]], *, saved: bool = False, until: float = math.inf
) -> Pushed:
    """Push members to their parts, of one index or of several of one database. ``saved``: true if this connection has
    just committed, so the database takes writes. ``until``: the time after which no further batch is begun."""
    push = _Push(reach, saved=saved)
    connection = connections[reach.parts[0].get_using()]
    size = min(_BATCH, connection.features.max_query_params or _BATCH)
    for chunk in batched(((part, pk) for part, own in members.items() for pk in own), size):
        if monotonic() >= until:
            logger.warning("%d members or more were not pushed, as Redis was slow to answer", len(chunk))
            break
        todo: dict[RankIndex, list[Any]] = defaultdict(list)
        for part, pk in chunk:
            todo[part].append(pk)
        push.run(todo)
        for index, parts in _by_index(part for part in todo if part not in reach.failed).items():
            if members_pushed.has_listeners(index):
                members_pushed.send_robust(index, members=[pk for part in parts for pk in todo[part]])
    return Pushed(
        {part: written for part, written in push.written.items() if part not in reach.failed},
        push.astray,
        {part.whole for part, epoch in push.epochs.items() if epoch.is_watched},
    )


def _by_index(parts: Iterable[RankIndex]) -> dict[RankIndex, list[RankIndex]]:
    """Return the parts of each index."""
    indexes: dict[RankIndex, list[RankIndex]] = {}
    for part in parts:
        indexes.setdefault(part.whole, []).append(part)
    return indexes


class _Push:
    """One push. The rows of an index are read once for all of its parts, after their tokens are taken."""

    def __init__(self, reach: Reach, *, saved: bool) -> None:
        self.reach, self.saved = reach, saved
        self.stores = {part: Store.of(part) for part in reach.parts}

        self.epochs: dict[RankIndex, Epoch] = {}
        """The epoch of the next write of each part: its token is the version of the last one."""

        self.written: dict[RankIndex, Written] = {}
        self.astray: set[RankIndex] = set()

    def run(self, todo: Mapping[RankIndex, list[Any]]) -> None:
        """Write members, by their parts, until all are written here or by others."""
        refusals: dict[RankIndex, int] = defaultdict(int)
        reach = self.reach
        for _ in range(_ATTEMPTS):
            if new := [part for part in todo if part not in self.epochs]:
                notes.prefetch(new)
                self.epochs.update(reach.together({part: self.begin(part) for part in new}))
            if reach.failed:
                todo = {part: own for part, own in todo.items() if part not in reach.failed}
            if todo:
                todo = self.attempt(todo, refusals)
            if not todo:
                return
        for part in todo:
            reach.failed[part] = IndexUnavailable(
                f"Index {part.name!r}: rebuilds began too often for a write to succeed"
            )

    def begin(self, part: RankIndex) -> Query[Epoch]:
        return known(part, (yield from self.stores[part].beginning_write()))

    def attempt(
        self, todo: Mapping[RankIndex, list[Any]], refusals: dict[RankIndex, int]
    ) -> dict[RankIndex, list[Any]]:
        """Read and write members once. Return those to be read again."""
        changes: dict[RankIndex, list[Any]] = {part: [] for part in todo}
        for index, parts in _by_index(todo).items():
            pks = list(chain.from_iterable(todo[part] for part in parts))
            stores = [self.stores[part] for part in index.parts]
            found = index.split(read(index, pks, *stores), itemgetter(0))
            changes |= found
            if not self.saved:  # an idle connection may lead to a former primary
                require_writable(index.get_using())
            if len(index.parts) > 1:
                asked = set(map(index.to_text, pks))
                self.astray.update(
                    part for part, own in found.items() if not asked.issuperset(map(itemgetter(0), own))
                )
        again = self.reach.together({part: self.apply(part, own, refusals) for part, own in changes.items()})
        return {part: pks for part, pks in again.items() if pks}

    def apply(self, part: RankIndex, changes: list[Any], refusals: dict[RankIndex, int]) -> Query[list[Any]]:
        """Return the members to be read again."""
        epoch = self.epochs.get(part)
        result = epoch and (yield from self.stores[part].applying_changes(epoch, changes))
        # No token was taken yet, or another generation is live by now.
        if epoch is None or result is None:
            self.epochs.pop(part, None)
            refusals[part] = 0
            return [part.from_text(text) for text, *_ in changes]
        first = self.written.get(part, epoch)
        self.written[part] = Written(first.generation, int(first.term or 0), result.version)
        self.epochs[part] = epoch._replace(token=str(result.version))
        refusals[part] += 1
        if result.refused and refusals[part] < _REFUSALS:
            return list(map(part.from_bytes, result.refused))
        return []


def known(index: RankIndex, epoch: Epoch) -> Epoch:
    """Return the epoch of a write whose rows are about to be read, if the database knows it.

    The database must know the build in Redis, and have accepted its server: otherwise a test, or a staging system with
    a copy of the settings, would write into the index of another database.
    """
    if not (index.declares(epoch.generation) and index.declares(epoch.building)):
        raise NotBuilt(f"Index {index.name!r} is built, or being built, from another declaration")
    if not notes.is_noted(index, epoch.generation, epoch.building, epoch.term):
        raise IndexUnhealthy(
            f"Index {index.name!r}: the build in Redis, or its server, is unknown to database {index.get_using()!r}. "
            "sync_zrank resolves this, unless Redis holds another project's index"
        )
    return epoch


def forget(index: RankIndex) -> None:
    """Let the next push to a part that was rebuilt read its queryset and its note again."""
    rows.forget(index.whole)
    notes.forget(index)


def try_push(members: Mapping[RankIndex, set[Any]], *, until: float = math.inf) -> list[RankIndex]:
    """Push members of indexes, except to parts whose breaker is open. Return the indexes that were written to, and that
    no watcher keeps in step. Redis's failures are logged and signalled, never raised."""
    reach = Reach(*members)
    asked = {
        part: own
        for index, pks in members.items()
        for part, own in index.split(pks, index.to_text).items()
        if not reach.is_suspended(part)
    }
    if not asked:
        return []
    pushed = write(reach, asked, saved=True, until=until)
    for part, failure in reach.failed.items():
        if isinstance(failure, (NotBuilt, IndexUnhealthy)):  # the server is there
            reach.resume(part)
            logger.warning("Not pushed. %s", failure)
        else:
            reach.suspend(part, failure)
        push_failed.send_robust(part.whole, error=failure, members=set(asked.get(part, ())))
    for part in pushed.written:
        reach.resume(part)
    for server, seconds in reach.waited.items():
        if seconds > _SLOW:
            server.trip(IndexUnavailable(f"Redis took {seconds:.1f} s to answer a push"))
    return [index for index in _by_index(pushed.written) if index not in pushed.watched]


def read(index: RankIndex, pks: Iterable[Any], *stores: Store) -> Iterator[tuple[str, Number | None, bytes]]:
    """Return a :class:`~django_zrank.store.Change` of each member of ``pks``, as the writer database has it, and note
    in ``stores``, those of all parts, what was flushed."""
    pks = list(pks)
    for store in stores:
        store.flushed = None
    changes: dict[str, tuple[Number | None, bytes]] = dict.fromkeys(map(index.to_text, pks), _UNRANKED)
    with timezone.override(None):  # a request's would move the limits of __date and __year
        for pk, score, membership in rows.encode(index, rows.select_among(index, pks), stores):
            # The database's spelling of the key, which may find "bob" by "BOB".
            changes[index.to_text(pk)] = score, membership
    return ((text, score, membership) for text, (score, membership) in changes.items())


def _wake(sender: RankIndex, members: Sequence[Any], touched: Sequence[Any] = (), **kwargs: Any) -> None:
    using = sender.get_using()
    if touched and connections[using].in_atomic_block:
        transaction.on_commit(partial(_see, sender, (), touched), using=using, robust=True)
        touched = ()
    # A transaction's snapshot may be old, and what it reads of its own may be rolled back.
    if is_open(connections[using]):
        members = ()
    if members or touched:
        _see(sender, members, touched)


def _see(index: RankIndex, members: Sequence[Any], touched: Sequence[Any]) -> None:
    """Write to the column that ``members`` and ``touched`` were seen now, and push ``members``."""
    try:
        with without_waiting(connections[index.get_using()]):
            locked = write_seen(index, [*members, *touched]) if index.seen_field else []
            if members:
                push(index, members)
    except Busy as error:
        raise IndexUnavailable(f"Index {index.name!r}: the database is locked: {error}") from error
    if locked:
        names = ", ".join(map(str, locked[:5]))
        raise IndexUnavailable(
            f"Index {index.name!r}: {names} can't be touched: another transaction has locked the row"
        )


unranked.connect(_wake, dispatch_uid="django_zrank.sync.push")
