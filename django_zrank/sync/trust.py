"""Whether readers may believe a server: looked at once a second, on both sides."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError

from .notes import noted

if TYPE_CHECKING:
    from ..index import RankIndex
    from ..store import Health

__all__ = ["TESTS", "may_be_believed"]

TESTS: Final = "tests"
"""The owner of a build that a test has made, which no database need know."""

_RECENT: Final = 5.0
"""Seconds within which no server can have been replaced, resynchronised, promoted again, and have forgotten that."""

_believed: WeakKeyDictionary[RankIndex, tuple[float, str]] = WeakKeyDictionary()
"""When a server was last found to be the accepted one, and its identity."""


def may_be_believed(index: RankIndex, health: Health) -> bool:
    """Return whether what a server says of itself, and what the database notes, agree.

    Where the database can't be asked, the server's word is taken: reads don't depend on the database.
    """
    if health.behind or health.intact == "0":
        return False
    now = monotonic()
    if not (health.is_accepted or _began_a_history(index, health, now)):
        return False
    try:
        row = None if health.owner == TESTS else noted(index)
    except (DatabaseError, SynchronousOnlyOperation):
        row = None
    if row is not None and (health.term, health.generation) != (str(row.term), row.generation):
        # A rebuild that was just put in place is noted in a moment.
        return health.term == str(row.term) and health.generation == row.building
    _believed[index] = now, health.server
    return True


def _began_a_history(index: RankIndex, health: Health, now: float) -> bool:
    """Whether only a first replica was attached: the server begins another history then, and loses nothing.

    Its process is the same, its history has no predecessor, and a moment ago it was the accepted one.
    """
    seen, server = _believed.get(index, (0.0, ""))
    if not health.is_first or now > seen + _RECENT:
        return False
    process = health.server.partition("/")[0]
    return process == health.accepted.partition("/")[0] and server in (health.accepted, health.server)
