"""Shards, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..extension import Extension
from .checks import check_shards
from .declaration import ShardedIndex
from .former import retire_former, unlink_former

__all__ = ["Divided"]


class Divided(Extension[ShardedIndex]):
    def check(self, index: ShardedIndex) -> Iterator[CheckMessage]:
        return check_shards(index)

    def replacing(self, index: ShardedIndex) -> None:
        retire_former(index)

    def discarding(self, index: ShardedIndex) -> None:
        unlink_former(index, discards=True)

    def replaced(self, index: ShardedIndex) -> None:
        unlink_former(index)
