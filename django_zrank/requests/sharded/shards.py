"""The shards of an index, as requests are made for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from ...keys import Keys
from ...shards import shard_of
from ..request import Request, merge

__all__ = ["Shards"]

Answer = TypeVar("Answer")


class Shards(NamedTuple):
    """The shards of an index."""

    keys: tuple[Keys, ...]
    """Of each, in their order: the keys of its live generation."""

    @property
    def generation(self) -> str:
        """The live generations; '' if one of the shards has none."""
        generations = [keys.generation for keys in self.keys]
        return ",".join(generations) if all(generations) else ""

    def of(self, member: str) -> int:
        """The number of the shard that a member belongs to, given as Redis stores it."""
        return shard_of(member, len(self.keys))

    def own(self, member: str) -> Keys:
        """The keys of that shard."""
        return self.keys[self.of(member)]

    def split(self, members: Iterable[str]) -> dict[int, list[str]]:
        """Members by the numbers of their shards."""
        found: dict[int, list[str]] = {}
        for member in members:
            found.setdefault(self.of(member), []).append(member)
        return found

    def each(
        self, ask: Callable[..., Request[Answer]], members: Iterable[str] | None = None
    ) -> Request[list[Answer]]:
        """A request for what the shards answer, in their order; about ``members``: only those that one belongs to, each
        about its own."""
        if members is None:
            return merge([ask(keys) for keys in self.keys], spread=True)
        own = self.split(members)
        return merge([ask(self.keys[shard], some) for shard, some in own.items()], spread=True)
