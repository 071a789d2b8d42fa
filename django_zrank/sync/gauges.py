"""Counts and lag of an index, for any metrics library to export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from django.db.models.functions import Now

from ..builds import recorded
from ..declaration import Index
from ..exceptions import NotBuilt
from ..extension import declared
from ..store import Store
from .health import Status, examine_holder, obstacle, with_capture, worst
from .in_step import InStep
from .marks import waiting_marks

MOST_WAITING: Final = 100_000
"""The most marks that are counted, because an outage may leave millions and metrics are read often."""


@dataclass(frozen=True)
class Gauges:
    """The state of an index at this moment."""

    waiting: int
    """Marks that wait to be processed, counted up to 100,000."""

    oldest: float
    """Age of the oldest waiting mark in seconds, by the database's clock; 0 if none waits."""

    members: int | None
    """Members in Redis; None if Redis can't be reached."""

    status: Status | None
    """The health of the index; the worst of its shards. None if one can't be reached."""

    pending: int | None = 0
    """Members whose scores have changed in Redis, but not yet in their column; None if Redis can't be reached."""

    lag: float = 0.0
    """Seconds for which scores have been pending, by Redis's clock; 0 if none is."""

    build: str = field(default="", compare=False)
    """The live build that the database has recorded; that of its first shard."""

    unwell: tuple[str, ...] = ()
    """The shards that can't be reached, or whose status is not HEALTHY."""

    reason: str = ""
    """The reason that keeps ``sync_zrank`` from repairing the index, and what to do; empty if nothing does."""


def read_gauges(index: Index) -> Gauges:
    """Read the gauges of an index. Each shard takes a few small queries and two round trips to Redis."""
    waiting = waiting_marks(index)
    first = waiting.order_by("id").annotate(now=Now()).values_list("at", "now").first()
    step = InStep(index.holders)
    looks = step.each(index.holders, _look)
    members, statuses, pending, lags = zip(*looks.values(), strict=True) if looks else ((), (), (), ())
    is_complete = not step.failed
    status = with_capture(index, worst(statuses)) if is_complete else None
    return Gauges(
        waiting=waiting[:MOST_WAITING].count(),
        oldest=max(0.0, (first[1] - first[0]).total_seconds()) if first else 0.0,
        members=sum(members) if is_complete else None,
        status=status,
        pending=sum(pending) if is_complete else None,
        lag=max(lags, default=0.0),
        build=recorded(index.holders[0]).build,
        unwell=tuple(
            holder.name
            for holder in index.holders
            if holder not in looks or looks[holder][1] is not Status.HEALTHY
        ),
        reason=obstacle(index, status) if status else "",
    )


def _look(holder: Index) -> tuple[int, Status, int, float]:
    """Return the members of a holder, the status, the pending scores, and the seconds for which one has waited."""
    store = Store.of(holder)
    try:
        members, status = store.size(), examine_holder(holder)
        waits = [one.waiting(store) for one in declared(holder).values()]
        return members, status, sum(n for n, _ in waits), max((lag for _, lag in waits), default=0.0)
    except NotBuilt:
        return 0, Status.EMPTY, 0, 0.0
