"""Writes: members as they change, and whole generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from ..codec.units import Number
from ..queries.query import Query, one
from ..queries.request import Call
from ..redis import scripts
from ..redis.replicas import wrote
from ..redis.scripts import Script
from ..redis.steps import drive
from .base import Base

__all__ = ["LOAD_LIMIT", "Applied", "BuiltRow", "Change", "Epoch", "Writing"]

LOAD_LIMIT: Final = 3500
"""The most rows of a batch of a rebuild, for each part: the batch is in memory at once."""

_APPLY_WITH_PENDING: Final = Script("apply_changes", pending=True)
_LOAD_WITH_PENDING: Final = Script("load_rows", pending=True)

LOADED: Final = 800
WRITTEN: Final = 200
"""The most members of rankings that one call of a rebuild, or of a push, writes: so many members of an index without
facets, a quarter of one where each stands in three facet rankings, too. Rows of a rebuild are sorted, and new. With a
million members, a call takes 0.9 to 2.2 ms, or 2 to 3 ms, of the server: ``python -m tests.benchmarks.pieces``."""

_COST: Final = 10
"""Microseconds of the server that each of these writes takes, about."""

_DENSE: Final = 3
"""The number of writes of a member of a ranking that counts distinct values, too."""

_UNLINKED: Final = 100
"""The number of facet rankings of an old generation unlinked in one call: about a millisecond."""

_LEFT: Final = 3
"""The number of facet rankings that a member without any is assumed to leave."""


class Epoch(NamedTuple):
    """The state that a write refers to: taken before its rows are read, checked when they are applied."""

    generation: str
    building: str

    token: str
    """The version of a write. Members whose newest write has a higher one are refused."""

    term: str
    """Under which the server was accepted."""

    is_watched: bool = False
    """True while a watcher keeps the index in step, so that a request need not."""


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


_Change = tuple[str | bytes, Number | None, bytes]

BuiltRow = tuple[str, Number, bytes]
"""A :class:`Change` of a rebuild, its member as text."""


class _Heads(dict[int, bytes]):
    """MessagePack's head of a text, by the length of that. Only the short ones are kept."""

    def __missing__(self, length: int) -> bytes:
        if length > 255:
            return b"\xdb" + length.to_bytes(4, "big")
        return self.setdefault(length, bytes([0xA0 + length] if length < 32 else [0xD9, length]))


_HEADS: Final = _Heads()


def _pack_all(texts: Iterable[bytes]) -> bytes:
    """MessagePack of texts, one after the other."""
    return b"".join([part for text in texts for part in (_HEADS[len(text)], text)])


_Written = TypeVar("_Written", bound=tuple[Any, Any, bytes])


class Writing(Base):
    """The writes of a store."""

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        return drive(self.beginning_write(), self.send)

    def beginning_write(self) -> Query[Epoch]:
        """The query of :meth:`begin_write`."""
        keys = self.keys
        touched = keys.meta, keys.doomed, keys.watcher
        *texts, watched = yield from one(Call(scripts.BEGIN_WRITE, touched, (self.LEASE,)))
        generation, building, token, term = map(bytes.decode, texts)
        return Epoch(generation, building, token, term, bool(watched))

    def apply_changes(self, epoch: Epoch, changes: Iterable[_Change]) -> Applied | None:
        """Return the answer to :meth:`applying_changes`."""
        return drive(self.applying_changes(epoch, changes), self.send)

    def applying_changes(self, epoch: Epoch, changes: Iterable[_Change]) -> Query[Applied | None]:
        """Make members what each :class:`Change` says, in all rankings, unless they were written since the epoch.
        Of a member that is named twice, the first one counts. None, with some written or none: begin again.

        In pieces, all under the epoch: so the version is that of the last one, and a server that knows it has all.
        """
        keys = self.keys
        first: dict[str | bytes, _Change] = {}
        for change in changes:
            first.setdefault(change[0], change)
        live, built = keys.at(epoch.generation), keys.at(epoch.building)
        begins = (*epoch[:4], self.WINDOW, self.LEASE, *self._layout)
        script = scripts.APPLY_CHANGES
        names: tuple[str, ...] = (live.root, built.root, keys.recent, keys.meta, keys.doomed)
        ends: tuple[Any, ...] = ()
        if self.rule:
            script, names = _APPLY_WITH_PENDING, (*names, keys.pending)
            ends = (self.rule, "" if self.flushed is None else self.flushed)

        refused: list[bytes] = []
        # A rebuild that is running gets the changes, too.
        most = WRITTEN // 2 if epoch.building else WRITTEN
        for writes, piece in self._pieces(first.values(), most):
            texts: Iterable[tuple[Any, ...]]
            members = chain.from_iterable(piece)
            if self.layout.memberships:
                texts = ((member, _text(score), membership) for member, score, membership in members)
            else:
                texts = ((member, _text(score)) for member, score, _ in members)
            arguments = (*begins, *chain.from_iterable(texts), *ends)
            reply = yield from one(Call(script, names, arguments, _COST * writes))
            if reply == [b"superseded"]:
                return None
            _, version, *others = reply
            wrote(live, (int(epoch.term or 0), int(version)))
            refused += others
        return Applied(int(version), refused)

    def _pieces(self, changes: Collection[_Written], most: int) -> Iterator[tuple[int, list[list[_Written]]]]:
        """Yield members in pieces of at most so many writes, with their number; without members, one empty piece.

        A piece is a list of groups of members that stand in the same facet rankings: it writes to few of these, by one
        command each. A member of more rankings than fit makes a piece of its own.
        """
        groups: dict[bytes, list[_Written]] = {b"": list(changes)}
        if self.layout.memberships:
            groups = defaultdict(list)
            width = self.layout.width
            for change in changes:
                # The names of its facet rankings; tie bytes come first where other members have none.
                groups[change[2][width:]].append(change)
        piece: list[list[_Written]] = []
        left = most
        for names in sorted(groups):
            each, at, members = self._writes(names), 0, groups[names]
            while at < len(members):
                count = max(left // each, not piece)
                if count:
                    piece.append(members[at : at + count])
                    at += count
                    left -= each * len(piece[-1])
                else:
                    yield most - left, piece
                    piece, left = [], most
        yield most - left, piece

    def _writes(self, names: bytes) -> int:
        """Return the number of writes of a member, by the names of its facet rankings."""
        facets = names.count(b"\0") + 1 if names else _LEFT if self.layout.memberships else 0
        return (1 + facets) * (_DENSE if self.layout.dense else 1)

    # Rebuilding

    def start_rebuild(
        self, building: str, *, owner: str, server: str, term: int, polite: bool = False
    ) -> bool:
        """Begin to build the generation ``building`` on ``server``. Another rebuild that is running gives way;
        or, where this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        args = (building, owner, server, term, "1" if polite else "0", self.LEASE)
        return self._is_done(scripts.START_REBUILD, (keys.recent, keys.meta, keys.doomed), args)

    def _pack(self, rows: Sequence[BuiltRow]) -> bytes:
        """MessagePack of rows that stand in the same facet rankings."""
        first = rows[0][2]
        tied = len(self.layout.split(first)[0])
        scored: list[bytes] = []
        noted: list[bytes] = []
        # One loop that makes no containers: they would have the garbage collector run, which takes as long as the rest.
        for text, score, membership in rows:
            number, member = repr(score).encode(), text.encode()
            stored = membership[:tied] + member if tied else member
            scored += _HEADS[len(number)], number, _HEADS[len(stored)], stored
            if first:
                noted += _HEADS[len(member)], member, _HEADS[len(membership)], membership
        return _pack_all([first[tied:], b"".join(scored), b"".join(noted)])

    def load_rows(self, building: str, rows: Collection[BuiltRow]) -> bool:
        """Add members to what is being built, in pieces. False: it was superseded.

        Not in one pipeline: the server would answer all of it before it turns to another client."""
        keys = self.keys
        script = scripts.LOAD_ROWS
        touched: tuple[str, ...] = (keys.at(building).root, keys.recent, keys.meta)
        ends: tuple[Any, ...] = ()
        if self.rule:
            script, touched = _LOAD_WITH_PENDING, (*touched, keys.pending)
            ends = (self.rule, self.flushed or 0)
        return all(
            self._is_done(script, touched, (building, *self._layout, b"".join(map(self._pack, piece)), *ends))
            for _, piece in self._pieces(rows, LOADED)
        )

    def keep_alive(self, building: str) -> None:
        """Note that a rebuild is alive while the database still looks for its first rows."""
        keys = self.keys  # without what is pending, which no row that comes would be merged with
        where = (keys.at(building).root, keys.recent, keys.meta)
        self._call(scripts.LOAD_ROWS, where, (building, *self._layout, b""))

    def swap_rebuilt(self, building: str, swept: int | None = None) -> bool:
        """Put what was built in the place of the live generation. False: it was superseded.

        ``swept``: the time up to which nobody who was last seen is in it.
        """
        live, built = self.learn(), self.keys.at(building)
        keys = (live.root, built.root, live.meta, live.doomed)
        arguments = building, live.generation, "" if swept is None else swept
        swapped = self._is_done(scripts.SWAP_REBUILT, keys, arguments)
        if swapped:
            self.believe(building)
        return swapped

    def abandon_rebuild(self, building: str) -> bool:
        """Give up what was built so far. False: it was superseded."""
        keys = self.keys
        return self._is_done(scripts.ABANDON_REBUILD, (keys.meta, keys.doomed), (building,))

    def unlink_doomed(self) -> None:
        """Unlink the keys of generations that were replaced or given up, in pieces."""
        keys = self.keys
        for name in self._call("SRANDMEMBER", (keys.doomed,), (_UNLINKED,)):
            doomed = keys.at(name.decode())
            where = (doomed.root, doomed.meta, doomed.doomed)
            while not self._is_done(scripts.UNLINK_GENERATION, where, (doomed.generation, _UNLINKED)):
                pass


def _text(score: Number | None) -> str:
    return "" if score is None else repr(score)
