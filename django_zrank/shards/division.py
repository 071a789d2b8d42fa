"""The synchronization of an index with shards: functions that take the place of those of the kernel (``divisible``)."""

from __future__ import annotations

from .building import building
from .routing import draining

__all__ = ["building", "draining"]
