"""The circuit breakers of servers: one that doesn't answer keeps no push waiting."""

from __future__ import annotations

import logging
from time import monotonic

from ..conf import get_settings
from ..exceptions import IndexUnavailable

__all__ = ["Breaker", "breaker"]

logger = logging.getLogger("django_zrank.sync")


class Breaker:
    """A circuit breaker, open for ``RETRY_AFTER`` seconds after a failure. A process has one for its server, and one
    for each further server, and for each index that holds a part of the members of another.

    Threads share it without a lock: a race costs at most one extra call or warning.
    """

    def __init__(self) -> None:
        self._closes_at = 0.0
        self._failing = False
        self._others: dict[str, Breaker] = {}
        self._refusing: dict[str, set[str]] = {}

    def of(self, name: str) -> Breaker:
        """The breaker of a server, or of an index, with a name of its own; this one for '', the only server."""
        return self._others.setdefault(name, Breaker()) if name else self

    def forget(self) -> None:
        """Forget all failures."""
        self._others.clear()
        self._refusing.clear()
        self.reset()

    @property
    def is_open(self) -> bool:
        """True while pushes are skipped."""
        return monotonic() < self._closes_at

    @property
    def is_any_open(self) -> bool:
        """True while some pushes are skipped."""
        return self.is_open or any(other.is_open for other in list(self._others.values()))

    def trip(self, error: IndexUnavailable) -> None:
        """Note that a push failed. Warns once for each outage."""
        seconds = get_settings().retry_after
        self._closes_at = monotonic() + seconds
        if not self._failing:
            self._failing = True
            logger.warning("Pushes are suspended, the next is tried in %g s. %s", seconds, error)

    def reset(self) -> None:
        """Note that a push succeeded."""
        self._closes_at = 0.0
        if self._failing:
            self._failing = False
            logger.info(
                "Redis answers again. Changes saved in the meantime wait as marks, and are applied next."
            )

    def refuse(self, declared: str, holder: str, error: IndexUnavailable) -> None:
        """Note that a holder of an index refuses pushes, although its server answers. Warns once for each index, until
        its holders have taken a push."""
        if declared not in self._refusing:
            logger.warning("Not pushed; further changes wait as marks until this is fixed. %s", error)
        self._refusing.setdefault(declared, set()).add(holder)

    def accept(self, declared: str, holder: str) -> None:
        """Note that a holder has taken a push."""
        if holders := self._refusing.get(declared):
            holders.discard(holder)
            if not holders:
                self._refusing.pop(declared, None)


breaker = Breaker()
