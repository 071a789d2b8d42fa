"""Members to Redis, as the writer database holds them at this moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from .. import notes
from ..exceptions import Busy, IndexUnavailable, IndexUnhealthy, NotBuilt
from ..signals import push_failed, unranked
from ..store import Epoch, Number, Store
from . import rows
from .breaker import breaker
from .seen import carry_touches, write_seen
from .transactions import is_open

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["begin", "forget", "push", "read", "try_push"]

logger = logging.getLogger("django_zrank.sync")

_BATCH: Final = 1000
_UNRANKED: Final = (None, b"")

_ATTEMPTS: Final = 10
"""The number of times that a write is tried while rebuilds begin and end."""

_REFUSALS: Final = 2
"""After two refusals a newer write has won. The write that refused attempt 2 replaced the one that refused
attempt 1, so its token, and its row after that, were taken when the change was committed: it has the change."""


def push(index: RankIndex, pks: Iterable[Any]) -> tuple[Epoch, int]:
    """Write the members ``pks`` as the database holds them; those that aren't ranked are removed.

    The order is what makes it right: a token, the version of the newest write, is known before the rows are read, and
    Redis refuses a member that was written since: it is read once more. So of two writes of one member, the later one
    has read later than the other was written. After two refusals a newer write has won (see ``_REFUSALS``).

    Returns the epoch of the first write, and the version of the last one.
    Raises :exc:`~django_zrank.IndexUnavailable`, and :exc:`~django_zrank.exceptions.IndexUnhealthy` where Redis holds a
    build that the database doesn't know; :exc:`~django_zrank.exceptions.Busy` where a touch could not be carried.
    """
    store, pks = Store(index.name, index.layout, index.rule), list(pks)
    size = min(_BATCH, connections[index.get_using()].features.max_query_params or _BATCH)
    first = epoch = begin(index, store)
    for start in range(
        0, max(len(pks), 1), size
    ):  # no members: still a write, for unmark() needs its version
        epoch, gone = _write(index, store, pks[start : start + size], epoch)
        if start == 0:
            first = epoch
        # A touch that came before its removal may have returned: its column gets that, and it is ranked again. One that
        # comes later finds it missing, and wakes it.
        if gone and index.seen_field and (woken := carry_touches(index, store, gone, patience=0.0)):
            epoch, _ = _write(index, store, list(map(index.from_text, woken)), epoch)
    return first, int(epoch.token)


def _write(index: RankIndex, store: Store, pks: list[Any], epoch: Epoch) -> tuple[Epoch, list[str]]:
    """Write one batch, until all of it is written, or by others. Returns the epoch of the next one, whose token is the
    version of this write; and, where members may sleep, those that aren't ranked."""
    refusals, gone = 0, set[str]()
    for _ in range(_ATTEMPTS):
        changes = list(read(index, pks, store))
        applied = store.apply_changes(epoch, changes)
        if applied is None:
            epoch, refusals = begin(index, store), 0
            continue
        epoch = epoch._replace(token=str(applied.version))
        refusals += 1
        if index.awake:
            gone.update(text for text, score, _ in changes if score is None)
        if not applied.refused or refusals == _REFUSALS:
            return epoch, list(gone)
        pks = list(map(index.from_bytes, applied.refused))
    raise IndexUnavailable(f"Index {index.name!r}: rebuilds began too often for a write to get through")


def begin(index: RankIndex, store: Store) -> Epoch:
    """Return the epoch of a write whose rows are about to be read.

    A write is accepted only where the database knows the build in Redis, and has accepted its server: else a test, or a
    staging system with a copy of the settings, would write into the index of another database.
    """
    epoch = store.begin_write()
    if not (index.declares(epoch.generation) and index.declares(epoch.building)):
        raise NotBuilt(f"Index {index.name!r} is being built, or was, by processes with another declaration")
    if not notes.is_noted(index, epoch.generation, epoch.building, epoch.term):
        raise IndexUnhealthy(
            f"Index {index.name!r}: Redis holds a build that database {index.get_using()!r} doesn't know, or on a "
            "server that it has not accepted. sync_zrank settles it, unless the two don't belong together"
        )
    return epoch


def forget(index: RankIndex) -> None:
    """Let the next push to an index that was rebuilt ask the database again."""
    rows.forget(index)
    notes.forget(index)


def try_push(index: RankIndex, pks: set[Any]) -> bool:
    """Push, unless the breaker is open. Failures of Redis are logged and signalled, never raised."""
    if breaker.is_open or not pks:
        return False
    try:
        push(index, pks)
    except Busy as error:  # its mark waits
        logger.debug("Index %r: not pushed. %s", index.name, error)
        return False
    except IndexUnavailable as error:
        if isinstance(error, (NotBuilt, IndexUnhealthy)):  # the server is there
            breaker.reset()
            logger.warning("Not pushed. %s", error)
        else:
            breaker.trip(error)
        push_failed.send_robust(index, error=error, members=pks)
        return False
    breaker.reset()
    return True


def read(
    index: RankIndex, pks: Iterable[Any], store: Store | None = None
) -> Iterator[tuple[str, Number | None, bytes]]:
    """Return a :class:`~django_zrank.store.Change` of each member of ``pks``, as the writer database has it."""
    pks = list(pks)
    found: Iterable[Sequence[Any]] = rows.select_among(index, pks)
    if store is not None:
        store.flushed, found = None, rows.note_flush(index, store, found)
    changes: dict[str, tuple[Number | None, bytes]] = dict.fromkeys(map(index.to_text, pks), _UNRANKED)
    for pk, score, membership in rows.encode(index, found):
        # Where the database finds "bob" by "BOB", the member is called as it spells it.
        changes[index.to_text(pk)] = score, membership
    return ((text, score, membership) for text, (score, membership) in changes.items())


def _wake(sender: RankIndex, members: list[Any], **kwargs: Any) -> None:
    # A transaction's snapshot may be old, and what it reads of its own may be rolled back.
    if is_open(connections[sender.get_using()]):
        return
    if sender.seen_field:
        write_seen(sender, dict.fromkeys(members))
    push(sender, members)


unranked.connect(_wake, dispatch_uid="django_zrank.sync.push")
