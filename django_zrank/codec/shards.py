"""Hash shards: an index in several parts, each kept like an index without shards."""

from __future__ import annotations

from binascii import crc32, crc_hqx
from collections.abc import Callable, Iterable
from copy import copy
from functools import cached_property
from typing import Any, Final, Self, TypeVar

__all__ = ["Sharded", "name_of", "shard_of", "whole_of"]

_SLOTS: Final = 16384
"""The hash slots of a Redis Cluster."""

_MULTIPLIER: Final = 0x9E3779B1
"""A prime next to 2**32 divided by the golden ratio: Knuth's multiplicative hashing."""

Item = TypeVar("Item")


class Sharded:
    """The shards of an index. Redis and the database know each by a name of its own."""

    shards: int = 1
    """The number of hash shards. Each lies in one slot of a cluster, with all that is known of its members. Changing
    the number takes a rebuild."""

    name: str

    @cached_property
    def whole(self) -> Self:
        """The index that this one is a part of."""
        return self

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """The shards, as indexes of other names; the index itself where it has one."""
        count = self.get_shards()
        return (
            (self,)
            if count == 1
            else tuple(self.called(name_of(self.name, shard, count)) for shard in range(count))
        )

    def get_shards(self) -> int:
        return self.shards

    def part_of(self, member: str | bytes) -> Self:
        """The part of a member, which is given as Redis stores it."""
        parts = self.parts
        return parts[0] if len(parts) == 1 else parts[shard_of(member, len(parts))]

    def split(
        self, items: Iterable[Item], member: Callable[[Item], Any] = lambda item: item
    ) -> dict[Self, list[Item]]:
        """Return the items that belong to each part. ``member``: a function from an item to the member it is about."""
        parts, count = self.parts, len(self.parts)
        if count == 1:
            return {parts[0]: found} if (found := list(items)) else {}
        split: list[list[Item]] = [[] for _ in range(count)]
        for item in items:
            split[shard_of(member(item), count)].append(item)
        return {part: own for part, own in zip(parts, split, strict=True) if own}

    def called(self, name: str) -> Self:
        """A part of this index by its name."""
        part = copy(self)
        part.name, part.whole, part.parts = name, self, (part,)
        return part


def shard_of(member: str | bytes, count: int) -> int:
    """The number of a member's shard. The CRC-32 is hashed once more: it is linear, and scores may depend on digits of
    the key."""
    text = member.encode() if isinstance(member, str) else member
    return (crc32(text) * _MULTIPLIER & 0xFFFFFFFF) * count >> 32


def name_of(index: str, shard: int, count: int) -> str:
    """The name of a shard: ``player/16:3.21``, with the first suffix for which its slot lies in the shard's own run of
    them, so that nodes with equal runs of slots hold equal numbers of shards."""
    first, last = shard * _SLOTS // count, (shard + 1) * _SLOTS // count
    suffix = 0
    while True:
        name = f"{index}/{count}:{shard}.{suffix}"
        if first <= crc_hqx(name.encode(), 0) % _SLOTS < last:
            return name
        suffix += 1


def whole_of(name: str) -> str:
    """The name of the index that one called ``name`` is a shard of, or that it is itself."""
    return name.partition("/")[0]
