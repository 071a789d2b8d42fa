"""Hash shards: the shard of a member, and the names of shards."""

from __future__ import annotations

from binascii import crc32, crc_hqx
from typing import Final

__all__ = ["name_of", "shard_of"]

_SLOTS: Final = 16384
"""The hash slots of a Redis Cluster."""

_MULTIPLIER: Final = 0x9E3779B1
"""A prime next to 2**32 divided by the golden ratio: Knuth's multiplicative hashing."""


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
