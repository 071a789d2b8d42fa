"""System checks of ``shards``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.core.checks import CheckMessage

from ..checks import error
from .declaration import ShardedIndex
from .names import name_of

__all__ = ["check_shards"]

_MOST: Final = 1024


def check_shards(index: ShardedIndex) -> Iterator[CheckMessage]:
    cls, count = type(index), index.get_shards()
    if type(count) is not int or not 1 <= count <= _MOST:
        hint = f"A whole number from 1 to {_MOST:,}. A read queries all of them: use no more than servers."
        yield error(cls, f".shards can't be {count!r}.", hint, "zrank.E039")
    elif count > 1 and len(longest := max((shard.name for shard in index.holders), key=len)) > 255:
        hint = f"Names of shards, such as {name_of('player', 3, 16)!r}, have at most 255 characters."
        yield error(cls, f": the name {longest!r} of a shard is too long.", hint, "zrank.E040")
