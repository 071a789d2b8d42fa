"""Counts and lag of an index, for any metrics library to export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from django.db.models.functions import Now

from ..exceptions import IndexUnavailable, NotBuilt
from ..notes import noted
from ..store import Store
from .health import Verdict, examine
from .marks import waiting_marks

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["MOST_WAITING", "Gauges", "read_gauges"]

MOST_WAITING: Final = 100_000
"""No more marks are counted: a long outage leaves millions, and metrics are asked every few seconds."""


@dataclass(frozen=True)
class Gauges:
    """The state of an index at this moment."""

    waiting: int
    """Marks that wait to be worked off, counted up to :data:`MOST_WAITING`."""

    oldest: float
    """Seconds since the oldest of them was left, by the database's clock; 0 where none waits."""

    members: int | None
    """Members in Redis; None where it can't be reached."""

    verdict: Verdict | None
    """The health of the index; None where Redis can't be reached."""

    pending: int | None = 0
    """Members whose scores have changed in Redis and not in their column yet; None where Redis can't be reached."""

    lag: float = 0.0
    """Seconds for which something has been pending, by Redis's clock; 0 where nothing is."""

    generation: str = field(default="", compare=False)
    """The build in force, as the database notes it."""

    term: int = field(default=0, compare=False)
    """The number of server histories that were accepted, as the database notes it."""


def read_gauges(index: RankIndex) -> Gauges:
    """Look at an index from both sides. A few small queries, and two round trips to Redis."""
    waiting, row = waiting_marks(index), noted(index)
    first = waiting.order_by("id").annotate(now=Now()).values_list("at", "now").first()
    store = Store(index.name, index.layout, index.rule)
    members: int | None
    verdict: Verdict | None
    pending: int | None
    pending, lag = 0, 0.0
    try:
        members, verdict = store.size(), examine(index)
        if index.rule:
            pending, lag = store.waiting()
    except NotBuilt:
        members, verdict = 0, Verdict.EMPTY
    except IndexUnavailable:
        members, verdict, pending = None, None, None
    return Gauges(
        waiting=waiting[:MOST_WAITING].count(),
        oldest=max(0.0, (first[1] - first[0]).total_seconds()) if first else 0.0,
        members=members,
        verdict=verdict,
        pending=pending,
        lag=lag,
        generation=row.generation,
        term=row.term,
    )
