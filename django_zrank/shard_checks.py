"""Checks of the shards of an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.core.checks import CheckMessage, Error

from .index import RankIndex
from .shards import name_of

__all__ = ["check_shards"]

_MOST: Final = 1024
_LONGEST: Final = 255


def check_shards(index: RankIndex) -> Iterator[CheckMessage]:
    """The messages about ``shards``."""
    cls, count = type(index), index.get_shards()
    if type(count) is not int or not 1 <= count <= _MOST:
        hint = f"A whole number from 1 to {_MOST:,}. A read asks all of them: as few as you will have servers do."
        yield Error(f"{cls.__name__}.shards is {count!r}.", hint=hint, obj=cls, id="zrank.E039")
    elif count > 1 and len(longest := max((part.name for part in index.parts), key=len)) > _LONGEST:
        hint = f"Names of shards, such as {name_of('player', 3, 16)!r}, have at most {_LONGEST} characters."
        yield Error(
            f"{cls.__name__}: the name {longest!r} of a shard is too long.",
            hint=hint,
            obj=cls,
            id="zrank.E040",
        )
