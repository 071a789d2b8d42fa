"""The same indexes with shards, to be filled by ``tests/populations.py``."""

from __future__ import annotations

from functools import cache

from django_zrank import RankIndex

__all__ = ["COUNTS", "sharded"]

COUNTS = (1, 2, 3, 7, 16)
"""Numbers of shards that answers are compared for."""


@cache
def sharded(index: type[RankIndex], shards: int) -> type[RankIndex]:
    """An index like another one, with so many shards: not registered."""
    return type(f"{index.__name__}{shards}", (index,), {"shards": shards, "__module__": index.__module__})
