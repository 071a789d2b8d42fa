"""Counts of members by a facet: the largest ones, kept for a while by each process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple

from ..exceptions import FilterNotReady

__all__ = ["Counts", "KeptCounts"]

_SHARE: Final = 20
"""Answers are kept for as many times as counting them took, if that is longer."""

_MOST: Final = 256
"""The most answers that are kept. Counts of few values are the most numerous, and the cheapest."""


_LONGEST: Final = 60.0
"""Seconds for which they are kept at most, if the view doesn't ask for more."""


class Counts(NamedTuple):
    """The counts of a facet's values."""

    number: int
    """The number of values."""

    largest: Sequence[tuple[Any, int]]
    """The values with the most members, and how many these are."""


class _Tally:
    """The counts of one facet."""

    def __init__(self) -> None:
        self.counting = Lock()
        self.until: float = 0.0
        self.counts = Counts(0, ())


class KeptCounts:
    """Counts by what is counted. Each is counted by one thread at a time, and kept for some seconds, or for 20 times as
    long as counting took if that is longer, but not for more than a minute. So a client that asks again and again costs
    a twentieth at most, unless counting takes longer than three seconds."""

    def __init__(self) -> None:
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Keep nothing. Threads that a forked process doesn't have may hold the locks."""
        self._guard = Lock()
        self._kept: OrderedDict[Hashable, _Tally] = OrderedDict()

    def get(self, what: Hashable, count: Callable[[], Counts], *, seconds: float, patience: float) -> Counts:
        """Return the counts of ``what``; ``count`` counts anew. Raises ``FilterNotReady`` if another thread is still
        counting after ``patience``, in seconds."""
        with self._guard:
            kept = self._kept.setdefault(what, _Tally())
            self._kept.move_to_end(what)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        if monotonic() < kept.until:
            return kept.counts
        if not kept.counting.acquire(timeout=patience):
            raise FilterNotReady(f"the values aren't counted after {patience:g} seconds")
        try:
            began = monotonic()
            if began >= kept.until:  # else another thread has counted
                kept.counts = count()
                now = monotonic()
                kept.until = now + max(seconds, min(_SHARE * (now - began), _LONGEST))
            return kept.counts
        finally:
            kept.counting.release()
