"""The synchronization of an index with shards: functions that take the place of those of the kernel (``divisible``)."""

from __future__ import annotations

from .building import building, rebuild_holders
from .routing import draining

__all__ = ["building", "draining", "rebuild_holders"]
