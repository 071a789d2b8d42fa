"""Members to Redis, as the writer database holds them at this moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from ..exceptions import IndexUnavailable, NotBuilt
from ..signals import push_failed
from ..store import Epoch, Number, Store
from . import rows
from .breaker import breaker

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["forget", "push", "read", "try_push"]

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000
_UNRANKED: Final = (None, b"")

_ATTEMPTS: Final = 10
"""How often a write is tried while rebuilds begin and end."""

_REFUSALS: Final = 3
"""How often a member is refused before it is left alone. The write that refused attempt 3 read its row after the write
that refused attempt 2 was applied, and so after attempt 1 was refused: it has the change."""

_FRESH: Final = 1.0
"""Seconds for which the place of this process's last write is a token. In a longer time, members are too likely to have
been written by another process."""

_newest: dict[str, tuple[float, Epoch]] = {}
"""By the key of an index: when this process wrote last, and the epoch for its next write."""


def push(index: RankIndex, pks: Iterable[Any]) -> tuple[Epoch, int]:
    """Write the members ``pks`` as the database holds them; those that aren't ranked are removed.

    The order is what makes it right: a token, a place among all writes, is known before the rows are read, and Redis
    refuses a member that was written since: it is read once more. So of two writes of one member, the later one has
    read later than the other was written. (Who is refused again and again, see ``_REFUSALS``, leaves it to the others.)

    Returns the epoch of the first write, and the place of the last one among all.
    Raises :exc:`~django_zrank.IndexUnavailable`.
    """
    store, first, place = Store(index.name, index.layout), None, 0
    limit = connections[index.get_using()].features.max_query_params or _BATCH
    pks, size = list(pks), min(_BATCH, limit)
    for start in range(0, max(len(pks), 1), size):  # no members: still a write, for unmark() needs its place
        epoch, place = _write(index, store, pks[start : start + size])
        first = first or epoch
    return first, place  # type: ignore[return-value]  # at least one was written


def _write(index: RankIndex, store: Store, pks: list[Any]) -> tuple[Epoch, int]:
    """One batch, until all of it is written, or by others."""
    epoch, first, refusals = _recall(store), None, 0
    for _ in range(_ATTEMPTS):
        epoch = epoch or store.begin_write()
        if not (index.declares(epoch.generation) and index.declares(epoch.building)):
            raise NotBuilt(
                f"Index {index.name!r} is being built, or was, by processes with another declaration"
            )
        applied = store.apply_changes(epoch, read(index, pks))
        if applied is None:
            epoch, refusals = None, 0
            continue
        first = first or epoch
        epoch = epoch._replace(token=str(applied.place))
        _newest[store.keys.live] = monotonic(), epoch
        refusals += 1
        if not applied.refused or refusals == _REFUSALS:
            return first, applied.place
        pks = list(map(index.from_bytes, applied.refused))
    raise IndexUnavailable(f"Index {index.name!r}: rebuilds began too often for a write to get through")


def _recall(store: Store) -> Epoch | None:
    """What this process was told by its last write, if that is not long ago: one round trip less."""
    written, epoch = _newest.get(store.keys.live, (0.0, None))
    return epoch if monotonic() < written + _FRESH else None


def forget(index: RankIndex) -> None:
    """Let the next push to an index that was rebuilt ask what it refers to, and which rows are ranked."""
    _newest.pop(Store(index.name).keys.live, None)
    rows.forget(index)


def try_push(index: RankIndex, pks: set[Any]) -> bool:
    """Push, unless the breaker is open. Failures of Redis are logged and signalled, never raised."""
    if breaker.is_open or not pks:
        return False
    try:
        push(index, pks)
    except IndexUnavailable as error:
        if isinstance(error, NotBuilt):  # the server is there, and has nothing
            breaker.reset()
            logger.warning("Not pushed. %s", error)
        else:
            breaker.trip(error)
        push_failed.send_robust(index, error=error, members=pks)
        return False
    breaker.reset()
    return True


def read(index: RankIndex, pks: Iterable[Any]) -> Iterator[tuple[str, Number | None, bytes]]:
    """What each member of ``pks`` is to be, as the writer database has it: a :class:`~django_zrank.store.Change`."""
    pks = list(pks)
    changes: dict[str, tuple[Number | None, bytes]] = dict.fromkeys(map(index.to_text, pks), _UNRANKED)
    for pk, score, entry in rows.encode(index, rows.select_among(index, pks)):
        # Where the database finds "bob" by "BOB", the member is called as it spells it.
        changes[index.to_text(pk)] = score, entry
    return ((text, score, entry) for text, (score, entry) in changes.items())
