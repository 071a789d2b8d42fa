"""The attribute ``shards`` of an index, and what follows from it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final, Self

from django.db import models

from ..declaration import Index, Member
from ..members import values_of
from .names import name_of, shard_of

__all__ = ["ShardedIndex"]

_NUMBER: Final = re.compile(r"\d+:\d+\.\d+")
"""The part of a shard's name behind that of its index."""


class ShardedIndex(Index[Member]):
    """The declaration of an index that may have shards. Redis and the database know each shard by a name of its own."""

    shards: int = 1
    """The number of hash shards. Each lies in one slot of a cluster, with all that is known of its members. Changing
    the number takes a rebuild."""

    def get_shards(self) -> int:
        return self.shards

    @property
    def division(self) -> str:
        return "django_zrank.shards.division" if len(self.holders) > 1 else ""

    @property
    def reader(self) -> str:
        return "django_zrank.shards.reader.ShardedReader" if len(self.holders) > 1 else super().reader

    @cached_property
    def holders(self) -> tuple[Self, ...]:
        """The shards, in order; the index itself if it has one."""
        count = self.get_shards()
        if count == 1:
            return (self,)
        return tuple(self.shard(name_of(self.name, shard, count)) for shard in range(count))

    def shard(self, name: str) -> Self:
        """Return a shard of this index by its name. It may be one that the index had before."""
        shard = type(self)()
        shard.name, shard.declared, shard.holders = name, self, (shard,)
        return shard

    def holder_of(self, member: str | bytes) -> Self:
        holders = self.holders
        return holders[0] if len(holders) == 1 else holders[shard_of(member, len(holders))]

    def sort_key_of(self, member: Any) -> tuple[float, bytes] | None:
        """None unless ``member`` is an instance with all criteria loaded. Also None with write-behind scores, as rows
        are often behind."""
        if len(self.holders) == 1 or self.is_ahead or not isinstance(member, models.Model):
            return None
        try:
            score, tie = self.ordering.encode(values_of(self, member))
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):  # an expression, or text
            return None
        return float(score), tie + self.to_text(member).encode()

    def may_hold(self, name: str) -> bool:
        index, slash, number = name.partition("/")
        return index == self.name and (not slash or bool(_NUMBER.fullmatch(number)))
