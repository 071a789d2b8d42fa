"""Rows of generations: what the database knows of the build in Redis, looked up at most once a second."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ..models import Batch, Generation

if TYPE_CHECKING:
    from ..index import RankIndex
    from ..store import Health

__all__ = ["forget", "has_all", "is_accepted", "is_noted", "newest_batch", "noted"]

_FRESH: Final = 1.0
"""Seconds for which a row that was read is believed."""

_read: WeakKeyDictionary[RankIndex, tuple[float, str, Generation]] = WeakKeyDictionary()


def noted(index: RankIndex) -> Generation:
    """Return what the database knows of the build of ``index``."""
    using = index.get_using()
    found = Generation.objects.using(using).filter(index=index.name).first() or Generation(index=index.name)
    _read[index] = monotonic() + _FRESH, using, found
    return found


def is_noted(index: RankIndex, generation: str, building: str, term: str) -> bool:
    """Return whether the database knows this build, or this one that is being built, under this term.

    What was read within a second will do where it agrees.
    """
    until, using, known = _read.get(index, (0.0, "", None))
    is_fresh = known is not None and monotonic() < until and using == index.get_using()
    if is_fresh and _agrees(known, generation, building, term):  # type: ignore[arg-type]
        return True
    return _agrees(noted(index), generation, building, term)


def _agrees(known: Generation, generation: str, building: str, term: str) -> bool:
    if str(known.term) != term:
        return False
    if generation:
        return generation in (known.generation, known.building)
    return building == known.building


def is_accepted(health: Health, row: Generation) -> bool:
    """Return whether a server is the one that was accepted last: as it says itself, and as the database notes."""
    return health.is_accepted and (health.term, health.server) == (str(row.term), row.server)


def newest_batch(index: RankIndex) -> tuple[int, int]:
    """Return the term and the version of the newest batch, (0, 0) for none. To be asked before the server is: drains
    go on meanwhile."""
    batches = Batch.objects.using(index.get_using()).filter(index=index.name)
    return batches.order_by("-term", "-version").values_list("term", "version").first() or (0, 0)


def has_all(health: Health, newest: tuple[int, int]) -> bool:
    """Return whether a server has the newest batch, if that is of its own term, whatever its identity says."""
    return newest[0] != health.position[0] or newest <= health.position


def forget(index: RankIndex) -> None:
    """Read the row again when it is next asked for."""
    _read.pop(index, None)
