"""Everything that talks to Redis. The client is loaded when an index is first read or written, not by a declaration."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ..declaration import Declaration

if TYPE_CHECKING:
    from .reader import Reader

__all__ = ["reader_of"]


@cache
def reader_of(index: Declaration) -> Reader:
    """Return the reader that answers questions about an index from Redis."""
    from .reader import Reader, ShardedReader

    return Reader(index) if len(index.parts) == 1 else ShardedReader(index)
