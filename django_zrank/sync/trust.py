"""Trust of readers in a server, checked once a second in Redis and in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError

from .notes import has_all, newest_batch, noted

if TYPE_CHECKING:
    from ..index import RankIndex
    from ..store import Health

__all__ = ["TESTS", "may_be_believed"]

TESTS: Final = "tests"
"""The owner of a build that a test has made, which no database need know."""


def may_be_believed(index: RankIndex, health: Health) -> bool:
    """Return whether what a server says of itself, and what the database notes, agree.

    Where the database can't be asked, the server's word is taken: reads don't depend on the database.
    """
    if health.behind or health.intact == "0":
        return False
    try:
        if not (health.is_accepted or _began_a_history(index, health)):
            return False
        row = None if health.owner == TESTS else noted(index)
    except (DatabaseError, SynchronousOnlyOperation):
        return health.is_accepted
    if row is None or (health.term, health.generation) == (str(row.term), row.generation):
        return True
    # A rebuild that was just put in place is noted in a moment.
    return (health.term, health.generation) == (str(row.term), row.building)


def _began_a_history(index: RankIndex, health: Health) -> bool:
    """Return True if only a first replica was attached: the server begins another history then, and loses nothing.

    Its process is the same, and its history has no predecessor. Nothing was written since, as writes are refused until
    the history is accepted: so if it has every batch of its term, it has lost none.
    """
    process = health.server.partition("/")[0]
    same_process = process == health.accepted.partition("/")[0]
    return bool(health.is_first) and same_process and has_all(health, newest_batch(index))
