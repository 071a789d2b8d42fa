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
from .triggers import CHANNEL

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["sync", "watch"]

logger = logging.getLogger("django_zrank.sync")

_LONGEST_PAUSE: Final = 30.0
_TURN: Final = 0.5
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
    while not stop.is_set():
        for index in indexes:
            try:
                _listen(index)
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
                    report(index, marks)
        _pause(indexes, max(interval, *pauses.values()), stop)


def _pause(indexes: Sequence[RankIndex], seconds: float, stop: Event) -> None:
    """Wait until something changes, or the time is up.

    PostgreSQL tells when a transaction that left marks has committed. The other databases can't.
    """
    aliases = {index.get_using() for index in indexes}
    connection = connections[aliases.pop()]
    driver: Any = connection.connection
    if aliases or connection.vendor != "postgresql" or not hasattr(driver, "notifies"):  # psycopg 3 has it
        stop.wait(seconds)
        return
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


def _listen(index: RankIndex) -> None:
    """Ask PostgreSQL to tell. Before marks are looked for: of those that come later it tells."""
    connection = connections[index.get_using()]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
