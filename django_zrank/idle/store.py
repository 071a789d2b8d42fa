"""Notes in Redis of members that were touched."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from ..redis.scripts import Script
from ..store import Store
from .touching import touched_key

__all__ = ["IdleStore"]

REST_MEMBERS: Final = Script("rest_members", __package__)


class IdleStore(Store):
    """An index with ``idle`` in Redis, as touches write it."""

    def rest_members(self, members: Collection[str], rest: timedelta) -> None:
        """Note that the column of ``members`` was written, and needs no touch until ``rest`` is over."""
        if members:
            micros = rest // timedelta(microseconds=1)
            self.call(REST_MEMBERS, (touched_key(self.keys),), (micros, *members))
