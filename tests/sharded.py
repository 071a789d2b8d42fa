"""The same indexes with shards, to be filled by ``tests/populations.py``."""

from __future__ import annotations

from functools import cache

from django_zrank import RankIndex

__all__ = ["sharded"]


@cache
def sharded(index: type[RankIndex], shards: int) -> type[RankIndex]:
    """An index like another one, with so many shards: not registered."""
    return type(f"{index.__name__}{shards}", (index,), {"shards": shards, "__module__": index.__module__})
