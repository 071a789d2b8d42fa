"""Writes: members as they change, and whole generations."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Final, NamedTuple

from redis import Redis

from .. import scripts
from ..codec.units import Number
from ..scripts import Script
from .base import Base

__all__ = ["LOAD_LIMIT", "Applied", "Change", "Epoch", "Writing"]

LOAD_LIMIT: Final = 3500
"""The most rows that one ``load_rows()`` takes: Lua's ``unpack`` fails at 8,000 values."""

_APPLY_WITH_PENDING: Final = Script("apply_changes", pending=True)
_LOAD_WITH_PENDING: Final = Script("load_rows", pending=True)

_UNLINKED: Final = 100
"""The number of facet rankings of an old generation unlinked in one call: about a millisecond."""


class Epoch(NamedTuple):
    """The state that a write refers to: taken before its rows are read, checked when they are applied."""

    generation: str
    building: str

    token: str
    """The version of a write. Members whose newest write has a higher one are refused."""

    term: str
    """Under which the server was accepted."""


class Applied(NamedTuple):
    """The result of a write."""

    version: int
    """The number of the write, which only grows: a token for what is read from now on."""

    refused: list[bytes]
    """The members that were written by others since the token was taken: to be read once more."""


class Change(NamedTuple):
    """A member as it is to be written. Plain tuples of the same shape do, too."""

    member: str | bytes
    score: Number | None
    """None: not ranked."""

    membership: bytes = b""
    """See :class:`~django_zrank.codec.layout.Layout`."""


class Writing(Base):
    """The writes of a store."""

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        reply = self._call(scripts.BEGIN_WRITE, (keys.meta, keys.doomed), (self.LEASE,))
        if reply is None:
            raise self.not_built()
        return Epoch(*map(bytes.decode, reply))

    def apply_changes(
        self, epoch: Epoch, changes: Iterable[tuple[str | bytes, Number | None, bytes]]
    ) -> Applied | None:
        """Make members what each :class:`Change` says, in all rankings, unless they were written since the epoch.
        None, with nothing written: begin again."""
        keys = self.keys
        texts: Iterable[tuple[Any, ...]]
        if self.layout.memberships:
            texts = ((member, _text(score), membership) for member, score, membership in changes)
        else:
            texts = ((member, _text(score)) for member, score, _ in changes)
        roots = keys.at(epoch.generation).root, keys.at(epoch.building).root
        args: tuple[Any, ...] = (*epoch, self.WINDOW, self.LEASE, *self._layout, *chain.from_iterable(texts))
        script = scripts.APPLY_CHANGES
        names: tuple[str, ...] = (*roots, keys.recent, keys.meta, keys.doomed)
        if self.rule:
            first, flushed = 10, "" if self.flushed is None else self.flushed
            args += (len(names) + 1, first, 2 + self.layout.memberships, self.rule, flushed)
            script, names = _APPLY_WITH_PENDING, (*names, keys.meta, keys.pending)
        reply = self._call(script, names, args)
        return None if reply is None else Applied(int(reply[0]), reply[1:])

    # Rebuilding

    def start_rebuild(
        self, building: str, *, owner: str, server: str, term: int, polite: bool = False
    ) -> bool:
        """Begin to build the generation ``building`` on ``server``. Another rebuild that is running gives way;
        or, where this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        args = (building, owner, server, term, "1" if polite else "0", self.LEASE)
        return bool(self._call(scripts.START_REBUILD, (keys.recent, keys.meta, keys.doomed), args))

    def load_rows(self, building: str, rows: Collection[tuple[str, Number, bytes]]) -> bool:
        """Add up to ``LOAD_LIMIT`` members (each a :class:`Change`, its member as text) to what is being built.
        False: it was superseded."""
        keys, packed = self.keys, b""
        texts: list[str | int]
        if self.layout.memberships:
            texts = [
                part for member, score, membership in rows for part in (repr(score), member, len(membership))
            ]
            packed = b"".join([membership for _, _, membership in rows])
        else:
            texts = [part for member, score, _ in rows for part in (repr(score), member)]
        args: tuple[Any, ...] = (building, *self._layout, json.dumps(texts, separators=(",", ":")), packed)
        script = scripts.LOAD_ROWS
        names: tuple[str, ...] = (keys.at(building).root, keys.recent, keys.meta)
        if self.rule:
            args += (len(names) + 1, len(args) - 1, 2 + self.layout.memberships, self.rule, self.flushed or 0)
            script, names = _LOAD_WITH_PENDING, (*names, keys.meta, keys.pending)
        reply = self._call(script, names, args)
        return bool(reply)

    def swap_rebuilt(self, building: str) -> bool:
        """Put what was built in the place of the live generation. False: it was superseded."""
        live, built = self.learn(), self.keys.at(building)
        keys = (live.root, built.root, live.meta, live.doomed)
        swapped = bool(self._call(scripts.SWAP_REBUILT, keys, (building, live.generation)))
        if swapped:
            self.believe(building)
        return swapped

    def abandon_rebuild(self, building: str) -> bool:
        """Give up what was built so far. False: it was superseded."""
        keys = self.keys
        return bool(self._call(scripts.ABANDON_REBUILD, (keys.meta, keys.doomed), (building,)))

    def unlink_doomed(self) -> None:
        """Unlink the keys of generations that were replaced or given up, in pieces."""
        keys = self.keys
        for name in self._call(Redis.smembers, keys.doomed):
            doomed = keys.at(name.decode())
            where = (doomed.root, doomed.meta, doomed.doomed)
            while self._call(scripts.UNLINK_GENERATION, where, (doomed.generation, _UNLINKED)):
                pass


def _text(score: Number | None) -> str:
    return "" if score is None else repr(score)
