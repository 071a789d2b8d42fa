"""Comparison of Redis with the database, member by member, while both change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from ..conf import get_settings
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt, RebuildSuperseded
from ..index import RankIndex
from ..locations import sharing
from ..signals import drift_found
from ..store import Replaced, Store
from .comparison import Comparison
from .gauges import read_gauges
from .health import Verdict, examine
from .rebuild import rebuild
from .report import Report
from .transactions import refuse_transaction
from .triggers import examine_capture
from .watch import sync

__all__ = ["verify"]

BATCH_SIZE: Final = 2000

_ATTEMPTS: Final = 3
"""The most attempts at a verification that rebuilds interrupt."""


def verify(
    index: RankIndex,
    *,
    repair: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda members: None,
) -> Report:
    """Compare what Redis holds of ``index`` with what the database ranks.

    Both sides are read in batches: memory doesn't grow with their number, and no query, transaction or call to Redis is
    long. Members that look wrong are checked again, so that a change on its way isn't reported as drift; for that,
    marks that wait are worked off. ``progress`` is called with the number of rows, or of members, of each batch.
    ``repair``: repair an index that isn't healthy, leave a mark for each member that is wrong, and work the
    marks off.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` if ``repair`` takes a rebuild and another one
    is running; and ``TransactionManagementError`` inside a transaction, where an old snapshot might be read.
    """
    refuse_transaction(index.get_using(), "A verification")
    found, gauges = examine(index), read_gauges(index)
    if repair:
        sync(index)
    for _ in range(_ATTEMPTS):
        report = Report(
            index,
            capture=examine_capture(index),
            waiting=gauges.waiting,
            oldest=gauges.oldest,
            warnings=list(_warnings(index)),
            verdict=examine(index),
        )
        # A health check looks at some facet rankings only: this one may find what an earlier one missed.
        if repair and report.verdict is Verdict.EVICTED:
            found = report.verdict
            rebuild(index, polite=True)
            continue
        with suppress(Replaced, IndexUnhealthy, NotBuilt, RebuildSuperseded):
            if report.verdict in (Verdict.HEALTHY, Verdict.BEHIND, Verdict.UNCAPTURED):
                Comparison(report, repair=repair, size=batch_size, progress=progress).run()
                report.compared = True
            break
    else:
        raise IndexUnavailable(f"Index {index.name!r}: it was rebuilt too often to be verified")
    if report.compared:  # otherwise the verdict is the reason why they were not
        if repair and examine(index).wants_rebuild:  # the repair has shown that a key was evicted
            sync(index)
        report.verdict = examine(index)
    if repair and found is not Verdict.HEALTHY and report.verdict is Verdict.HEALTHY:
        report.verdict_before = found
    if report.drift:
        drift_found.send(
            index,
            missing=report.missing.count,
            extra=report.extra.count,
            different=report.different.count,
        )
    return report


def _warnings(index: RankIndex) -> Iterator[str]:
    if warning := sharing(get_settings().redis_alias):
        yield warning
    policy = None
    with suppress(IndexUnavailable):
        policy = Store.of(index).eviction_policy()
    if policy is None:
        yield "Redis's maxmemory-policy could not be read: make sure that it is none of allkeys-*."
    elif policy.startswith("allkeys"):
        yield f"Redis evicts any key when its memory is full (maxmemory-policy {policy}): set noeviction."
