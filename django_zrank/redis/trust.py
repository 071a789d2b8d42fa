"""Rows of generations: the build of each index that the database knows, and trust in a server that agrees with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error

from ..declaration import Declaration
from ..models import Batch, Generation
from ..recent import Recent

if TYPE_CHECKING:
    from ..store import Health

TESTS: Final = "tests"
"""The owner of a build that a test has made. The database may know nothing of it."""

RETIRED: Final = "retired"
"""The generation noted for a shard once its index has been built with another number of shards. Writes to it, under the
build that its row notes as ``building``, no longer process marks."""

_read: Recent[Generation] = Recent()

_MOMENT: Final = 0.1
"""Seconds for which the rows of the other shards are kept: the same call needs them next."""

_beside: Recent[Generation] = Recent()
"""Rows that were read together with that of another shard: each is used once, within ``_MOMENT``."""


def recorded(index: Declaration) -> Generation:
    """Return what the database knows of the build of ``index``."""
    using = index.get_using()
    return _read.keep((index.name, using), _rows(using, [index.name])[index.name])


def prefetch(indexes: Collection[Declaration]) -> None:
    """Read the rows of indexes of one database in one query, for :func:`is_recorded`, unless they were read lately."""
    due = [index for index in indexes if _read.get((index.name, index.get_using())) is None]
    if len(due) > 1:
        using = due[0].get_using()
        for name, row in _rows(using, [index.name for index in due]).items():
            _read.keep((name, using), row)


def _recorded_together(index: Declaration) -> Generation:
    """Return what the database knows of the build of ``index``. The rows of all shards are read in one query, as the
    others are needed next."""
    whole, using = index.whole, index.get_using()
    if whole is index:
        return recorded(index)
    row = _beside.get((index.name, using))
    if row is None:
        rows = _rows(using, [part.name for part in whole.parts])
        for name, beside in rows.items():
            _beside.keep((name, using), beside, _MOMENT)
        row = rows[index.name]
    _beside.forget((index.name, using))  # the next call reads it again
    return row


def _rows(using: str, names: Collection[str]) -> dict[str, Generation]:
    """Return the rows of builds by the names of their indexes, read in one query; an empty one where there is none."""
    found = Generation.objects.using(using).in_bulk(names)
    return {name: found.get(name) or Generation(index=name) for name in names}


def is_recorded(index: Declaration, generation: str, building: str, term: str, version: str) -> bool:
    """Return True if the database knows this build, or this one that is being built, under this term; and deleted no
    batch that a server with this newest version lacks.

    A row that was read within the last second is enough if it agrees.
    """
    state = generation, building, term, version
    known = _read.get((index.name, index.get_using()))
    if known is not None and _agrees(known, *state):
        return True
    return _agrees(recorded(index), *state)


def _agrees(known: Generation, generation: str, building: str, term: str, version: str) -> bool:
    if str(known.term) != term or lacks_deleted(known, (known.term, int(version))):
        return False
    if generation:
        return generation in (known.generation, known.building)
    return building == known.building


def is_accepted(health: Health, row: Generation) -> bool:
    """Return True if a server is the one that was accepted last: as it says itself, and as the database notes."""
    return health.is_accepted and (health.term, health.server) == (str(row.term), row.server)


def newest_batch(index: Declaration) -> tuple[int, int]:
    """Return the term and the version of the newest batch, (0, 0) for none. Call it before asking the server, as drains
    continue meanwhile."""
    batches = Batch.objects.using(index.get_using()).filter(index=index.name)
    return batches.order_by("-term", "-version").values_list("term", "version").first() or (0, 0)


def lacks_deleted(row: Generation, position: tuple[int, int]) -> bool:
    """Return True if a server whose newest write has this term and version lacks writes whose batches were deleted. Its
    identity doesn't matter: a machine may be rolled back with its memory."""
    return position < (row.purged_term, row.purged)


def has_all(health: Health, newest: tuple[int, int]) -> bool:
    """Return True unless the newest batch is of the server's own term and the server lacks it. Its identity doesn't
    matter here."""
    return newest[0] != health.position[0] or newest <= health.position


def forget(index: Declaration) -> None:
    """Read the row again when it is next asked for."""
    _read.forget((index.name, index.get_using()))


def may_be_believed(index: Declaration, health: Health) -> bool:
    """Return True if what a server says of itself and what the database notes agree.

    If the database can't be queried, the server is believed: reads don't depend on the database.
    """
    if health.behind or health.is_evicted:
        return False
    try:
        if not (health.is_accepted or _began_a_history(index, health)):
            return False
        row = None if health.owner == TESTS else _recorded_together(index)
    except (Error, SynchronousOnlyOperation):
        return health.is_accepted
    return _knows(row, health)


def may_be_written(index: Declaration, health: Health) -> bool:
    """Return True if scores may begin on a server: it is the accepted one, with a build that the database knows.

    If the database can't be queried, the server is believed.
    """
    try:
        row = None if health.owner == TESTS else recorded(index)
    except (Error, SynchronousOnlyOperation):
        row = None
    return health.is_accepted and _knows(row, health)


def _knows(row: Generation | None, health: Health) -> bool:
    """Return True if the database knows the build of a server, and deleted no batch that it needs. A rebuild that was
    just put in place is still noted as being built. ``row``: None if there is nothing to compare with."""
    return row is None or (
        health.term == str(row.term)
        and health.generation in (row.generation, row.building)
        and not lacks_deleted(row, health.position)
    )


def _began_a_history(index: Declaration, health: Health) -> bool:
    """Return True if the server began another history only because its first replica was attached, and lost nothing.

    Its process is the same, and its history has no predecessor. Writes are refused until the history is accepted, so if
    it has every batch of its term, it has lost none.
    """
    process = health.server.partition("/")[0]
    same_process = process == health.accepted.partition("/")[0]
    return health.is_first and same_process and has_all(health, newest_batch(index))
