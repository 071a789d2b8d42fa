"""The settings of reads from replicas."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplicaSettings"]


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Keys of ``ZRANK``, as in :class:`~django_zrank.conf.Settings`."""

    replica_lag: float = 5.0
    """Seconds that a replica may be behind: the primary is asked instead of one that is further behind."""
