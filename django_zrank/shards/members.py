"""The keys of the shards of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

from ..queries.steps import Steps, together
from ..redis.keys import Keys
from .names import shard_of

__all__ = ["Shards"]

Answer = TypeVar("Answer")


class _Shards(NamedTuple):
    keys: tuple[Keys, ...]
    """The keys of the live build of each shard, in order."""

    are_together: bool = False
    """True if one script may read all of them: on one server that isn't of a cluster."""


class Shards(_Shards):
    """The shards of an index, or some of them."""

    @cached_property
    def build(self) -> str:
        """The live builds; '' if one of the shards has none."""
        builds = [keys.build for keys in self.keys]
        return ",".join(builds) if all(builds) else ""

    @cached_property
    def builds(self) -> Sequence[str]:
        """One of the live builds of each declaration."""
        return list({keys.build.partition("-")[0]: keys.build for keys in self.keys}.values())

    @cached_property
    def rankings(self) -> Callable[[str], Sequence[str]]:
        """A function from the name of a ranking to its key in each shard."""
        return lru_cache(maxsize=256)(lambda name: [keys.ranking(name) for keys in self.keys])

    def apart(self) -> Shards:
        """The same shards, each read by a separate script."""
        return self.made(self.keys, False)

    @classmethod
    @lru_cache(maxsize=1024)  # as many as indexes have builds
    def made(cls, keys: tuple[Keys, ...], are_together: bool) -> Shards:
        return cls(keys, are_together)

    def of(self, member: str | bytes) -> int:
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
