"""Members to Redis, as the writer database holds them at this moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from ..exceptions import IndexUnavailable, NotBuilt
from ..signals import push_failed
from ..store import Epoch, Number, Store
from .breaker import breaker
from .rows import encode, select

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["push", "read", "try_push"]

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000
_ATTEMPTS: Final = 5
_UNRANKED: Final = (None, b"")


def push(index: RankIndex, pks: Iterable[Any]) -> tuple[Epoch, int]:
    """Write the members ``pks`` as the database holds them; those that aren't ranked are removed.

    The order is what makes it right: a token is taken before the rows are read, and Redis refuses what
    comes after a write with a higher one. So of two pushes of one member the later reading wins.

    Returns the epoch of the first write, and the place of the last one among all.
    Raises :exc:`~django_zrank.IndexUnavailable`.
    """
    store, first = Store(index.name, index.layout), None
    limit = connections[index.get_using()].features.max_query_params or _BATCH
    pks, size = list(pks), min(_BATCH, limit)
    for start in range(0, max(len(pks), 1), size):  # nobody: still a place among all writes
        batch = pks[start : start + size]
        for _ in range(_ATTEMPTS):
            epoch = store.begin_write()
            if not (index.declares(epoch.generation) and index.declares(epoch.building)):
                raise NotBuilt(
                    f"Index {index.name!r} is being built, or was, by processes with another declaration"
                )
            applied = store.apply_changes(epoch, read(index, batch))
            if applied is not None:
                first, place = first or epoch, applied
                break
        else:
            raise IndexUnavailable(
                f"Index {index.name!r}: rebuilds began too often for a write to get through"
            )
    return first, place  # type: ignore[return-value]  # at least one was written


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
    for pk, score, entry in encode(index, select(index, among=pks)):
        # Where the database finds "bob" by "BOB", the member is called as it spells it.
        changes[index.to_text(pk)] = score, entry
    return ((text, score, entry) for text, (score, entry) in changes.items())
