"""Builds of the shards of an index, which take their rows from one query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from ..declaration import Index
from ..store import BuiltRow, Store
from ..sync.in_step import InStep
from ..sync.rebuild import Rebuild
from ..sync.rows import encode
from .declaration import ShardedIndex

__all__ = ["building"]


def building(
    index: ShardedIndex, holders: Sequence[Index], *, polite: bool, test: bool, discards: bool
) -> Rebuild:
    return _Rebuilds(index, holders, polite=polite, test=test, discards=discards)


class _Rebuilds(Rebuild):
    """Builds of shards. One that can't be reached doesn't stop the others: it is raised when they are live."""

    def __init__(
        self, index: ShardedIndex, shards: Sequence[Index], *, polite: bool, test: bool, discards: bool
    ) -> None:
        self.index, self.step, name = index, InStep(index.holders), index.new_build()
        self.builds = self.step.each(
            shards, lambda shard: Rebuild(shard, name, polite=polite, test=test, discards=discards)
        )
        self.step.require(shards)
        self.former: Collection[str] = {owner for build in self.builds.values() for owner in build.former}
        self.swapped: dict[Index, tuple[str, int]] = {}

    def encode(self, rows: Iterable[Sequence[Any]]) -> Iterator[BuiltRow]:
        index, builds = self.index, self.builds
        # What extensions read is read for all shards.
        stores = [builds[shard].store if shard in builds else Store.of(shard) for shard in index.holders]
        found = encode(index, rows, stores)
        if len(builds) == len(stores):
            return found
        return (row for row in found if index.holder_of(row[0]) in builds)

    def start(self) -> None:
        self.step.each(self.builds, lambda shard: self.builds[shard].start())
        self.step.require(self.builds)

    def load(self, rows: Sequence[BuiltRow]) -> None:
        split = self.index.place(rows, itemgetter(0))
        self.step.each(split, lambda shard: self.builds[shard].load(split[shard]))
        self.step.require(self.builds)

    def swap(self, noted: Mapping[str, Any]) -> None:
        self.step.each(self.builds, lambda shard: self.builds[shard].swap(noted))
        for build in self.builds.values():
            self.swapped |= build.swapped
        for error in self.step.failed.values():
            raise error

    def keep_alive(self) -> None:
        for build in self.builds.values():
            with suppress(Exception):
                build.keep_alive()

    def abandon(self) -> None:
        for build in self.builds.values():
            build.abandon()

    def tidy(self) -> None:
        for build in self.builds.values():
            build.tidy()
