"""The settings of combined filters."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FilterSettings"]


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Keys of ``ZRANK``, as in :class:`~django_zrank.conf.Settings`."""

    max_scan: int = 5_000_000
    """The most members that are read to compute a combined filter; beyond, ``FilterTooLarge``.
    :meth:`~django_zrank.Ranking.within` sets a lower bound for a call."""

    max_combined_filters: int = 100
    """The most combined filters that an index, or a shard, keeps or computes at a time; beyond,
    ``FilterNotReady``."""

    max_combined_filter_bytes: int = 512 * 1024**2
    """The most memory in Redis that these may take, about."""

    filter_timeout: float = 30.0
    """Seconds that a call waits for a combined filter; beyond, ``FilterNotReady``."""
