"""Metrics of all indexes for Prometheus.

::

    from prometheus_client import REGISTRY
    from django_zrank.metrics import Collector

    REGISTRY.register(Collector())
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from typing import Any, Final

from django.db import Error, connections
from django.dispatch import Signal, receiver
from prometheus_client import Metric

from .registry import registry
from .signals import drained, drift_found, push_failed, rebuilt, repaired
from .sync.gauges import Gauges, read_gauges
from .sync.health import Status
from .sync.in_step import breaker

__all__ = ["Collector"]


_GAUGES: Final = {
    "zrank_up": "1 if Redis and the database can be reached",
    "zrank_healthy": "1 if the status is HEALTHY",
    "zrank_status": "1 for the current status",
    "zrank_members": "Members in Redis",
    "zrank_waiting_marks": "Changes waiting to be written to Redis",
    "zrank_lag_seconds": "Age of the oldest waiting change",
    "zrank_pending_scores": "Members whose scores have changed in Redis, but not yet in their column",
    "zrank_flush_lag_seconds": "Time for which scores have been pending",
    "zrank_live_build_info": "1 for the live build",
    "zrank_shard_unhealthy": "1 for a shard that can't be reached, or whose status is not HEALTHY",
    "zrank_breaker_open": "1 while this process skips pushes, after one has failed",
}
_COUNTERS: Final = {
    "zrank_pushes_failed": "Pushes of this process that did not reach Redis",
    "zrank_drained_marks": "Marks processed by this process",
    "zrank_repairs": "Repairs that this process has begun, by status",
    "zrank_rebuilds": "Rebuilds by this process",
    "zrank_drift": "Wrong members that verifications of this process have found",
}


class Collector:
    """A collector of ``prometheus_client``: the state of the indexes, and counts of what this process has done."""

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples, which takes no query."""
        for name, documentation in _GAUGES.items():
            yield Metric(name, documentation, "gauge")
        for name, documentation in _COUNTERS.items():
            yield Metric(name, documentation, "counter")

    def collect(self) -> Iterator[Metric]:
        """Yield the families: a few small queries and round trips for each index."""
        families = {metric.name: metric for metric in self.describe()}
        for index in registry.all():
            gauges = _gauges_of(index)
            _add(families["zrank_up"], gauges is not None and gauges.status is not None, index=index.name)
            if gauges is not None:
                _add_gauges(families, index.name, gauges)
        _add(families["zrank_breaker_open"], breaker.is_any_open)
        for (name, labels), count in list(_counts.items()):
            _add(families[name], count, **dict(labels))
        yield from families.values()


def _gauges_of(index: Any) -> Gauges | None:
    """The gauges of an index; None if its database can't be queried: those of other indexes are still shown.

    A connection opened for it is closed: nothing else closes those of the threads of ``start_http_server()``.
    """
    connection = connections[index.get_using()]
    with nullcontext() if connection.connection is not None else closing(connection), suppress(Error):
        return read_gauges(index)
    return None


def _add(family: Metric, value: float, **labels: str) -> None:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    family.add_sample(name, labels, float(value))


def _add_gauges(families: dict[str, Metric], name: str, gauges: Gauges) -> None:
    values = {
        "zrank_waiting_marks": gauges.waiting,
        "zrank_lag_seconds": gauges.oldest,
        "zrank_members": gauges.members,
        "zrank_pending_scores": gauges.pending,
        "zrank_flush_lag_seconds": gauges.lag,
        "zrank_healthy": gauges.status is Status.HEALTHY,
    }
    for family, value in values.items():
        if value is not None:
            _add(families[family], value, index=name)
    _add(families["zrank_live_build_info"], 1, index=name, build=gauges.build)
    for shard in gauges.unwell:
        if shard != name:
            _add(families["zrank_shard_unhealthy"], 1, index=name, shard=shard)
    for status in Status:
        _add(families["zrank_status"], status is gauges.status, index=name, status=status.name)


# Counts of this process, from the signals that the app sends

_counts: Final[Counter[tuple[str, tuple[tuple[str, str], ...]]]] = Counter()


def _count(sender: Any, name: str, by: int = 1, **labels: str) -> None:
    _counts[name, (("index", sender.name), *labels.items())] += by


@receiver([push_failed, drained, repaired, rebuilt, drift_found], dispatch_uid="django_zrank.metrics")
def _note(sender: Any, signal: Signal, **sent: Any) -> None:
    if signal is push_failed:
        _count(sender, "zrank_pushes_failed")
    elif signal is drained:
        _count(sender, "zrank_drained_marks", sent["marks"])
    elif signal is repaired:
        _count(sender, "zrank_repairs", status=sent["status"].name)
    elif signal is rebuilt:
        _count(sender, "zrank_rebuilds")
    else:
        for kind in ("missing", "extra", "different"):
            _count(sender, "zrank_drift", sent[kind], kind=kind)
