"""Pushes: members are written to Redis as the writer database has them now."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from django.db import connections
from django.utils import timezone

from ..codec.units import Number
from ..declaration import Declaration
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..extension import timed
from ..members import batched
from ..queries.query import Query
from ..redis import trust
from ..signals import push_failed
from ..signals import pushed as members_pushed
from ..store import Epoch, Store, trace_of
from ..transactions import require_synced, require_writable
from . import rows
from .each_shard import EachShard
from .marks import Written

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000
_UNRANKED: Final = (None, b"")

_SLOW: Final = 1.5
"""Seconds of Redis's answers to one push after which the next ones are suspended, although it succeeded."""

_ATTEMPTS: Final = 10
"""The most attempts at a write while rebuilds begin and end."""

_REFUSALS: Final = 2
"""After two refusals a newer write has won, which read its row after the change was committed (docs/protocol.md)."""


def push(index: Declaration, pks: Iterable[Any], *, noted: bool = False) -> Push:
    """Write the members ``pks`` as the database has them; those that aren't ranked are removed. ``noted``: true if
    marks are to be deleted for this.

    Optimistic concurrency: a fencing token, the version of the newest write, is taken before the rows are read. Redis
    refuses a member that was written since, and its row is read once more.

    Raises, if no part could be written to, :exc:`~django_zrank.IndexUnavailable`, or
    :exc:`~django_zrank.exceptions.IndexUnhealthy` if the database doesn't know the build in Redis.
    """
    shards = EachShard(index)
    pushed = write(shards, index.split(pks, index.to_text), noted=noted)
    if not pushed.written:
        shards.require(shards.failed)
    return pushed


def write(
    shards: EachShard,
    members: Mapping[Declaration, Iterable[Any]],
    *,
    saved: bool = False,
    noted: bool = False,
    until: float = math.inf,
) -> Push:
    """Push members to their parts, of one index or of several of one database. ``saved``: true if this connection has
    just committed, so the database takes writes. ``noted``: true if marks are to be deleted for this. ``until``: the
    time after which no further batch is begun."""
    push = Push(shards, saved=saved, noted=noted)
    connection = connections[shards.parts[0].get_using()]
    size = min(_BATCH, connection.features.max_query_params or _BATCH)
    for chunk in batched(((part, pk) for part, own in members.items() for pk in own), size):
        if monotonic() >= until:
            logger.warning("%d members or more were not pushed, as Redis was slow to answer", len(chunk))
            break
        todo: dict[Declaration, list[Any]] = defaultdict(list)
        for part, pk in chunk:
            todo[part].append(pk)
        push.run(todo)
        for index, parts in _by_index(part for part in todo if part not in shards.failed).items():
            if members_pushed.has_listeners(index):
                members_pushed.send_robust(index, members=[pk for part in parts for pk in todo[part]])
    for part in shards.failed:
        push.written.pop(part, None)
    return push


def _by_index(parts: Iterable[Declaration]) -> dict[Declaration, list[Declaration]]:
    """Return the parts of each index."""
    indexes: dict[Declaration, list[Declaration]] = {}
    for part in parts:
        indexes.setdefault(part.whole, []).append(part)
    return indexes


class Push:
    """One push, and its result. The rows of an index are read once for all of its parts, after their tokens."""

    def __init__(self, shards: EachShard, *, saved: bool, noted: bool) -> None:
        self.shards, self.saved = shards, saved
        self.nonce = token_hex(4) if noted else ""
        self.stores = {part: Store.of(part) for part in shards.parts}

        self.epochs: dict[Declaration, Epoch] = {}
        """The epoch of the next write of each part: its token is the version of the last one."""

        self.written: dict[Declaration, Written] = {}
        """The parts to which all of their members were written."""

        self.astray: set[Declaration] = set()
        """The parts of members whose key was given in another spelling than the database's."""

    def run(self, todo: Mapping[Declaration, list[Any]]) -> None:
        """Write members, by their parts, until all are written here or by others."""
        refusals: dict[Declaration, int] = defaultdict(int)
        shards = self.shards
        for _ in range(_ATTEMPTS):
            if new := [part for part in todo if part not in self.epochs]:
                trust.prefetch(new)
                self.epochs.update(shards.together({part: self.begin(part) for part in new}))
            # No row is read for a part that has failed.
            todo = self.attempt(
                {part: own for part, own in todo.items() if part not in shards.failed}, refusals
            )
            if not todo:
                return
        for part in todo:
            shards.failed[part] = IndexUnavailable(
                f"Index {part.name!r}: rebuilds began too often for a write to succeed"
            )

    def begin(self, part: Declaration) -> Query[Epoch]:
        return known(part, (yield from self.stores[part].beginning_write()))

    def attempt(
        self, todo: Mapping[Declaration, list[Any]], refusals: dict[Declaration, int]
    ) -> dict[Declaration, list[Any]]:
        """Read and write members once. Return those to be read again."""
        changes: dict[Declaration, list[Any]] = {part: [] for part in todo}
        for index, parts in _by_index(todo).items():
            pks = list(chain.from_iterable(todo[part] for part in parts))
            stores = [self.stores[part] for part in index.parts]
            require_synced(index.get_using())
            further = timed(index)
            before = {} if self.saved else {one: one.before_rows(index) for one in further}
            found = index.split(read(index, pks, *stores), itemgetter(0))
            changes |= found
            if further and any(score is None for own in found.values() for _, score, _ in own):
                for one in further:
                    if note := one.removing(index, before.get(one)):
                        self.shards.each(parts, lambda part, note=note: note(Store.of(part)))  # type: ignore[misc]
            if not self.saved:  # an idle connection may lead to a former primary
                require_writable(index.get_using())
            if len(index.parts) > 1:
                asked = set(map(index.to_text, pks))
                self.astray.update(
                    part for part, own in found.items() if not asked.issuperset(map(itemgetter(0), own))
                )
        again = self.shards.together({part: self.apply(part, own, refusals) for part, own in changes.items()})
        return {part: pks for part, pks in again.items() if pks}

    def apply(
        self, part: Declaration, changes: list[Any], refusals: dict[Declaration, int]
    ) -> Query[list[Any]]:
        """Return the members to be read again."""
        epoch = self.epochs.get(part)
        former = self.written.get(part)
        # What was written under another term is not noted (unmark()).
        is_continued = former is not None and epoch is not None and str(former.term) == epoch.term
        before = trace_of(former.version, self.nonce) if former and is_continued else ""
        result = epoch and (
            yield from self.stores[part].applying_changes(epoch, changes, nonce=self.nonce, before=before)
        )
        # No token was taken yet, or another generation is live by now.
        if epoch is None or result is None:
            self.epochs.pop(part, None)
            refusals[part] = 0
            return [part.from_text(text) for text, *_ in changes]
        first = former or epoch
        self.written[part] = Written(
            first.generation, int(first.term), result.version, self.nonce, epoch.required
        )
        self.epochs[part] = epoch._replace(token=str(result.version), newest=result.newest)
        refusals[part] += 1
        if refusals[part] < _REFUSALS:
            return list(map(part.from_bytes, result.refused))
        return []


def known(index: Declaration, epoch: Epoch) -> Epoch:
    """Return the epoch of a write whose rows are about to be read, if the database knows it.

    The database must know the build in Redis, and have accepted its server: otherwise a test, or a staging system with
    a copy of the settings, would write into the index of another database.
    """
    if not (index.declares(epoch.generation) and index.declares(epoch.building)):
        raise NotBuilt(f"Index {index.name!r} is built, or being built, from another declaration")
    row = trust.recorded_as(index, *epoch[:2], epoch.term)
    if row is None:
        raise IndexUnhealthy(
            f"Index {index.name!r}: the build in Redis, or its server, is unknown to database {index.get_using()!r}. "
            "sync_zrank resolves this, unless Redis holds another project's index"
        )
    return epoch._replace(required=row.traces)


def forget(index: Declaration) -> None:
    """Let the next push to a part that was rebuilt read its queryset and its note again."""
    rows.forget(index.whole)
    trust.forget(index)


def try_push(members: Mapping[Declaration, set[Any]], *, until: float = math.inf) -> list[Declaration]:
    """Push members of indexes, except to parts whose breaker is open. Return the indexes that were written to, and that
    no watcher keeps in step. Redis's failures are logged and signalled, never raised."""
    shards = EachShard(*members)
    asked = {
        part: own
        for index, pks in members.items()
        for part, own in index.split(pks, index.to_text).items()
        if not shards.is_suspended(part)
    }
    if not asked:
        return []
    pushed = write(shards, asked, saved=True, until=until)
    for part, failure in shards.failed.items():
        if isinstance(failure, (NotBuilt, IndexUnhealthy)):  # the server is there
            shards.resume(part)
            logger.warning("Not pushed. %s", failure)
        else:
            shards.suspend(part, failure)
        push_failed.send_robust(part.whole, error=failure, members=set(asked.get(part, ())))
    for part in pushed.written:
        shards.resume(part)
    for server, seconds in shards.waited.items():
        if seconds > _SLOW:
            server.trip(IndexUnavailable(f"Redis took {seconds:.1f} s to answer a push"))
    watched = {part.whole for part, epoch in pushed.epochs.items() if epoch.is_watched}
    return [index for index in _by_index(pushed.written) if index not in watched]


def read(
    index: Declaration, pks: Iterable[Any], *stores: Store
) -> Iterator[tuple[str, Number | None, bytes]]:
    """Return a :class:`~django_zrank.store.Change` of each member of ``pks``, as the writer database has it, and note
    in ``stores``, those of all parts, what extensions read with the rows."""
    pks = list(pks)
    for store in stores:
        store.noted.clear()
    changes: dict[str, tuple[Number | None, bytes]] = dict.fromkeys(map(index.to_text, pks), _UNRANKED)
    with timezone.override(None):  # a request's would move the limits of __date and __year
        for pk, score, membership in rows.encode(index, rows.select_among(index, pks), stores):
            # The database's spelling of the key, which may find "bob" by "BOB".
            changes[index.to_text(pk)] = score, membership
    return ((text, score, membership) for text, (score, membership) in changes.items())
