"""A circuit breaker: after a failure, the next pushes don't wait for a server that is down."""

from __future__ import annotations

import logging
from time import monotonic

from ..conf import get_settings
from ..exceptions import IndexUnavailable

__all__ = ["breaker"]

logger = logging.getLogger("django_zrank.sync")


class Breaker:
    """Open for ``RETRY_AFTER`` seconds after a failure. One for the process: there is one server; and one for each node
    of a cluster.

    Threads share it without a lock: the worst of a race is one call more, or one warning more.
    """

    def __init__(self) -> None:
        self._closes_at = 0.0
        self._failing = False
        self._nodes: dict[str, Breaker] = {}

    def of(self, node: str) -> Breaker:
        """The breaker of a node of a cluster; this one for '', the only server."""
        return self._nodes.setdefault(node, Breaker()) if node else self

    @property
    def is_open(self) -> bool:
        """True while pushes, or those to some node, are skipped."""
        return monotonic() < self._closes_at or any(node.is_open for node in self._nodes.values())

    def trip(self, error: IndexUnavailable) -> None:
        """A push has failed. Warns once for each outage."""
        seconds = get_settings().retry_after
        self._closes_at = monotonic() + seconds
        if not self._failing:
            self._failing = True
            logger.warning("Pushes are suspended, the next is tried in %g s. %s", seconds, error)

    def reset(self) -> None:
        """A push has succeeded."""
        self._nodes.clear()
        self._closes_at = 0.0
        if self._failing:
            self._failing = False
            logger.info("Pushes work again. Drains pick up what was saved meanwhile.")


breaker = Breaker()
