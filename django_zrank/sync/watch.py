"""Draining for as long as the process lives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from ..exceptions import RebuildSuperseded
from .drain import drain
from .health import Verdict, mend
from .triggers import CHANNEL, LISTENING

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["sync", "watch"]

logger = logging.getLogger("django_zrank.sync")

_LONGEST_PAUSE: Final = 30.0
_TURN: Final = 0.5
_NAP: Final = 0.02
_STEPS: Final = 4
"""What mending may take: a note that is missing, a restart, and another one meanwhile."""


def sync(index: RankIndex) -> int:
    """Mend ``index`` where it isn't healthy, and work off its marks. Returns how many.

    Raises :exc:`~django_zrank.IndexUnavailable`, and ``RebuildSuperseded`` where somebody else is at it.
    """
    for _ in range(_STEPS):
        if mend(index) in (Verdict.HEALTHY, Verdict.BEHIND, Verdict.BUILDING):
            break
    return drain(index)


def watch(
    indexes: Sequence[RankIndex],
    *,
    interval: float,
    stop: Event,
    report: Callable[[RankIndex, int], Any] = lambda index, marks: None,
) -> None:
    """Keep ``indexes`` in step until ``stop`` is set: every ``interval`` seconds, and on PostgreSQL at once.

    While Redis or the database is away, the pause between two tries doubles up to half a minute.
    """
    pauses = dict.fromkeys(indexes, 0.0)
    nap, idle = _NAP, False
    while not stop.is_set():
        # Asked before the look that finds nothing: a mark is then either found, or told of.
        told, idle = idle and _ask(indexes), True
        for index in indexes:
            try:
                marks = sync(index)
            except RebuildSuperseded as error:
                logger.info("%s", error)
            except Exception as error:  # noqa: BLE001 - drivers raise errors of their own; this must outlive all
                pauses[index] = min(_LONGEST_PAUSE, 2 * pauses[index] or interval)
                logger.warning(
                    "Index %r: not in step, next try in %g s. %s", index.name, pauses[index], error
                )
                _disconnect(index)
            else:
                pauses[index] = 0.0
                if marks:
                    idle = False
                    report(index, marks)
        seconds = max(interval, *pauses.values())
        if any(pauses.values()) or not _can_tell(indexes):
            stop.wait(seconds)
        elif told and idle:
            _pause(indexes, seconds, stop)
        else:  # too busy to ask, or refused while somebody writes
            nap = min(2 * nap, interval) if idle else _NAP
            stop.wait(min(nap, interval))
        if told:
            _cease(indexes)


def _can_tell(indexes: Sequence[RankIndex]) -> bool:
    """Whether all live in one PostgreSQL, through a driver that can wait for it: psycopg 3."""
    aliases = {index.get_using() for index in indexes}
    connection = connections[aliases.pop()]
    return not aliases and connection.vendor == "postgresql" and hasattr(connection.connection, "notifies")


def _ask(indexes: Sequence[RankIndex]) -> bool:
    """Ask PostgreSQL to tell of marks that are committed from now on. False while somebody writes some."""
    if not _can_tell(indexes):
        return False
    try:
        with connections[indexes[0].get_using()].cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [LISTENING])
            return bool(cursor.fetchone()[0])
    except Exception:  # noqa: BLE001 - the look that follows says what is wrong
        return False


def _cease(indexes: Sequence[RankIndex]) -> None:
    """Let writers be quiet. A connection that broke has let go by itself."""
    try:
        with connections[indexes[0].get_using()].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [LISTENING])
    except Exception:  # noqa: BLE001
        _disconnect(indexes[0])


def _pause(indexes: Sequence[RankIndex], seconds: float, stop: Event) -> None:
    """Wait until PostgreSQL tells that a transaction which left marks has committed, or the time is up."""
    connection = connections[indexes[0].get_using()]
    driver: Any = connection.connection
    deadline = monotonic() + seconds
    try:
        while not stop.is_set() and (left := deadline - monotonic()) > 0:
            # In short turns: a signal handler can set the event, and can't end the wait.
            if any(True for _ in driver.notifies(timeout=min(left, _TURN), stop_after=1)):
                return
    except driver.Error:  # the connection broke
        connection.connection = None
        stop.wait(seconds)


def _disconnect(index: RankIndex) -> None:
    """Let the next try open a new connection to the database. Closing a broken one may fail too."""
    connection = connections[index.get_using()]
    try:
        connection.close()
    except Exception:  # noqa: BLE001
        connection.connection = None
