"""Writes: members as they change, and whole generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from .. import scripts
from ..codec.units import Number
from ..engine.replicas import wrote
from ..requests.pace import LEAST, Pace
from ..scripts import Script
from .base import Base

__all__ = ["LOAD_LIMIT", "Applied", "Change", "Epoch", "Packed", "Writing"]

LOAD_LIMIT: Final = 3500
"""The most rows of a batch of a rebuild, for each part: the batch is in memory at once."""

_APPLY_WITH_PENDING: Final = Script("apply_changes", pending=True)
_LOAD_WITH_PENDING: Final = Script("load_rows", pending=True)

_LARGE: Final = 2**16
"""Members whose hash tables take long to double."""

_UNLINKED: Final = 100
"""The number of facet rankings of an old generation unlinked in one call: about a millisecond."""

_LEFT: Final = 3
"""The number of further facet rankings that a member is assumed to leave when it is removed."""


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


BuiltRow = tuple[str, Number, bytes]
"""A :class:`Change` of a rebuild, its member as text."""


class Packed(NamedTuple):
    """Rows as ``load_rows.lua`` takes them."""

    rows: int
    cost: int
    """In look-ups and writes."""

    packed: bytes


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

    _packed = 0
    """The number of rows of the rebuild that were packed."""

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        reply = self._call(scripts.BEGIN_WRITE, (keys.meta, keys.doomed), (self.LEASE,))
        return Epoch(*map(bytes.decode, reply))

    def apply_changes(
        self, epoch: Epoch, changes: Iterable[tuple[str | bytes, Number | None, bytes]]
    ) -> Applied | None:
        """Make members what each :class:`Change` says, in all rankings, unless they were written since the epoch.
        Of a member that is named twice, the first one counts. None, with some written or none: begin again.

        In pieces, all under the epoch: so the version is that of the last one, and a server that knows it has all.
        """
        keys = self.keys
        first: dict[str | bytes, tuple[str | bytes, Number | None, bytes]] = {}
        for change in changes:
            first.setdefault(change[0], change)
        live, built = keys.at(epoch.generation), keys.at(epoch.building)
        begins = (*epoch, self.WINDOW, self.LEASE, *self._layout)
        script = scripts.APPLY_CHANGES
        names: tuple[str, ...] = (live.root, built.root, keys.recent, keys.meta, keys.doomed)
        ends: tuple[Any, ...] = ()
        if self.rule:
            script, names = _APPLY_WITH_PENDING, (*names, keys.pending)
            ends = (self.rule, "" if self.flushed is None else self.flushed)

        def apply(piece: Sequence[Sequence[_Written]]) -> tuple[list[Any], float]:
            texts: Iterable[tuple[Any, ...]]
            members = chain.from_iterable(piece)
            if self.layout.memberships:
                texts = ((member, _text(score), membership) for member, score, membership in members)
            else:
                texts = ((member, _text(score)) for member, score, _ in members)
            reply = self._call(script, names, (*begins, *chain.from_iterable(texts), *ends))
            return reply, reply[2] / 1e6 if len(reply) > 2 else 0

        refused: list[bytes] = []
        groups = self._grouped(first.values(), *(5, 6) if epoch.building else (3, 3))
        for reply in _pace(self.name, "apply").run(apply, groups):
            if reply == [b"superseded"]:
                return None
            _, version, _, *others = reply
            wrote(live, (int(epoch.term or 0), int(version)))
            refused += others
        return Applied(int(version), refused)

    def _grouped(
        self, changes: Collection[_Written], fixed: int, each: int
    ) -> list[tuple[int, Sequence[_Written]]]:
        """Group members by the facet rankings that they stand in: a piece writes to few of these, by one command each.

        Returns each group with the look-ups and writes that one of its members takes: ``fixed``, and ``each`` for every
        ranking that it stands in. Rankings that it leaves are unknown here: the pace learns their cost from the time.
        """
        each += 2 * each * self.layout.dense
        if not self.layout.memberships:
            return [(fixed + each * self.layout.dense, list(changes))]
        groups: defaultdict[bytes, list[_Written]] = defaultdict(list)
        width = self.layout.width
        for change in changes:
            # The names of its facet rankings; tie bytes come first where other members have none.
            groups[change[2][width:]].append(change)
        costs = {names: fixed + each * (2 + names.count(b"\0")) for names in groups}
        if not all(change[2] for change in groups.get(b"", ())):
            costs[b""] += each * _LEFT  # those that are removed leave rankings that nobody has counted
        return [(costs[names], groups[names]) for names in sorted(groups)]

    # Rebuilding

    def start_rebuild(
        self, building: str, *, owner: str, server: str, term: int, polite: bool = False
    ) -> bool:
        """Begin to build the generation ``building`` on ``server``. Another rebuild that is running gives way;
        or, where this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        args = (building, owner, server, term, "1" if polite else "0", self.LEASE)
        self._packed = 0
        return self._is_done(scripts.START_REBUILD, (keys.recent, keys.meta, keys.doomed), args)

    def pack(self, rows: Collection[BuiltRow]) -> Iterator[Packed]:
        """Yield rows in pieces, for :meth:`load_rows`."""
        most = 2 * LEAST if _doubles(self._packed, len(rows)) else None
        self._packed += len(rows)
        for piece, cost in _pace(self.name, "load").pieces(self._grouped(rows, fixed=2, each=2), most):
            packed = b"".join(map(self._pack, piece))
            yield Packed(sum(map(len, piece)), cost, packed)

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

    def load_rows(self, building: str, piece: Packed) -> bool:
        """Add the members of a piece to what is being built. False: it was superseded."""
        keys = self.keys
        script = scripts.LOAD_ROWS
        touched: tuple[str, ...] = (keys.at(building).root, keys.recent, keys.meta)
        ends: tuple[Any, ...] = ()
        if self.rule:
            script, touched = _LOAD_WITH_PENDING, (*touched, keys.pending)
            ends = (self.rule, self.flushed or 0)
        arguments = (building, *self._layout, piece.packed, *ends)
        verdict, *spent = self._call(script, touched, arguments)
        _pace(self.name, "load").note(piece.cost, sum(spent) / 1e6)
        return bool(verdict == b"done")

    def keep_alive(self, building: str) -> None:
        """Note that a rebuild is alive while the database still looks for its first rows."""
        self.load_rows(building, Packed(0, 0, b""))

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


@cache
def _pace(index: str, operation: str) -> Pace:
    """The pace of an operation, as this process has learnt it."""
    return Pace()


def _doubles(before: int, rows: int) -> bool:
    """True if the server doubles the hash tables of all members while it takes these rows, or those before: Redis when
    they hold a power of two, Valkey seven times one. Every page of a new table is a page fault, so that rows take up to
    three times as long."""
    after = before + rows
    if after < _LARGE:
        return False
    power = 1 << after.bit_length() - 1
    return any(before - rows < full <= after for full in (power, power * 7 // 8, power * 7 // 4))


def _text(score: Number | None) -> str:
    return "" if score is None else repr(score)
