"""The keys of the shards of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from ..queries.steps import Steps, together
from ..redis.keys import Keys
from .names import shard_of

__all__ = ["Shards"]

Answer = TypeVar("Answer")


class Shards(NamedTuple):
    """The shards of an index."""

    keys: tuple[Keys, ...]
    """The keys of the live build of each shard, in order."""

    @property
    def build(self) -> str:
        """The live builds; '' if one of the shards has none."""
        builds = [keys.build for keys in self.keys]
        return ",".join(builds) if all(builds) else ""

    def of(self, member: str) -> int:
        """Return the number of the shard of a member."""
        return shard_of(member, len(self.keys))

    def own(self, member: str) -> Keys:
        """Return the keys of the shard of a member."""
        return self.keys[self.of(member)]

    def split(self, members: Iterable[str]) -> dict[int, list[str]]:
        """Group members by the numbers of their shards."""
        found: dict[int, list[str]] = {}
        for member in members:
            found.setdefault(self.of(member), []).append(member)
        return found

    def each(
        self, ask: Callable[..., Steps[Answer]], members: Iterable[str] | None = None
    ) -> Steps[list[Answer]]:
        """Return the answers of all shards, in order; with ``members``, of the shards they belong to, each about its
        own."""
        if members is None:
            return together([ask(keys) for keys in self.keys])
        own = self.split(members)
        return together([ask(self.keys[shard], some) for shard, some in own.items()])
