"""Random members near one member."""

from __future__ import annotations

import os
import random
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from .. import scripts
from ..codec.units import Number
from ..keys import Keys
from .request import Call, Request
from .view import View

__all__ = ["Draw", "Excluded", "Sample"]

_SPARE_NUMBERS: Final = 8
"""Random numbers beyond those needed, for the few that are drawn again so that none is favoured."""

Excluded = Sequence[int] | Sequence[str]
"""Primary keys never to offer: integers below 2**53, that of the asking one among them; or any, as text. An empty one
excludes nobody."""


class Sample(NamedTuple):
    """Members drawn at random."""

    size: int | None
    """Members in the ranking; None where several filters were tested one by one, which tells no ranks."""

    position: int
    """The number of members below the one who asked."""

    band: int
    """The number of the band that was used, from 0."""

    candidates: int
    """Members in that band, the asking one not counted, the excluded ones counted."""

    drawn: list[tuple[int, bytes, float]]
    """Position (from 0 at the lowest score), stored member and score of each, in the order they were drawn."""

    before: list[int] | None
    """The rank of each, less 1; None for an ordinal rank, which follows from the position."""


class Draw(NamedTuple):
    """Draw random distinct members near a member; None where that is not ranked."""

    member: str
    wanted: int

    bands: Sequence[tuple[Number, Number]]
    """Distances below and above, tried in turn."""

    measure: str = "score"
    """The unit of distances: "score"; "exact", scores that may lie beyond 2**53; "ranks"."""

    excluded: Excluded = ()

    remember: int | None = None
    """Microseconds for which those drawn are not drawn again."""

    seed: int | str | bytes | None = None
    """The same one draws the same members."""

    stream: Callable[[int], bytes] | None = None
    """Random bytes, by their count; None: those that ``seed`` begins."""

    def numbers(self) -> Callable[[int], bytes]:
        """A function from a count of bytes to random bytes."""
        if self.stream is not None:
            return self.stream
        return os.urandom if self.seed is None else random.Random(self.seed).randbytes  # noqa: S311 - not for secrets

    def request(self, view: View, keys: Keys) -> Request[Sample | None]:
        """One round trip; two where a combination of filters leaves so few that they are intersected first."""
        if view.ranking is None:
            return self._testing(view, keys)
        arguments = self._arguments(view, keys)
        if view.is_plain and self.measure == "score" and not self.remember:
            plain = Call(scripts.SAMPLE_NEARBY, (keys.root, keys.meta), arguments)
            return Request((plain,), lambda replies: _parse(replies[0], view))
        return self._drawing(view, keys, arguments)

    def _drawing(self, view: View, keys: Keys, arguments: tuple[Any, ...]) -> Request[Sample | None]:
        """From one ranking."""
        arguments = (*arguments, *self._how(view), "", 0, self.remember or "")
        seen = self._seen(keys)
        return view.read(
            keys,
            scripts.SAMPLE_ANYWHERE,
            arguments,
            lambda reply: _parse(reply, view),
            seen,
            writes=bool(self.remember),
        )

    def _testing(self, view: View, keys: Keys) -> Request[Sample | None]:
        """From the smallest ranking that holds all of those who pass several filters; from their intersection where
        too many of it don't pass."""
        patience = self._patience(view)
        arguments = self._arguments(view, keys, patience)

        def parse(replies: list[Any]) -> Sample | Request[Sample | None] | None:
            if replies[0][0] != b"out of patience":
                return _parse(replies[0], view)
            asked = list(arguments)
            if isinstance(asked[4], str):
                # An intersection may be some seconds old, and hold the asking one at a position that it has left.
                asked[4] += f"{self.member}\0"
            return self._drawing(view, keys, tuple(asked))

        tests = (*self._how(view), str(view.scope), patience, self.remember or "")
        read = (keys.root, keys.root, keys.meta, self._seen(keys), *view.tested(keys))
        call = Call(scripts.SAMPLE_ANYWHERE, read, (*arguments, *tests))
        return Request((call,), parse, writes=bool(self.remember))

    def _arguments(self, view: View, keys: Keys, patience: int = 0) -> tuple[Any, ...]:
        """The arguments that both sampling scripts take."""
        misses = 2 * (self.wanted + 17) if self.excluded or self.remember else 0
        return (
            self.member,
            self.wanted,
            "1" if view.reverse else "0",
            self._packed_bands(),
            _packed(self.excluded),
            self.numbers()(6 * (self.wanted + misses + patience + _SPARE_NUMBERS)),
            keys.generation,
        )

    def _how(self, view: View) -> tuple[Any, ...]:
        return view.layout.width, int(view.layout.memberships), self.measure, view.method

    def _seen(self, keys: Keys) -> str:
        return keys.seen(self.member) if self.remember else keys.meta

    def _patience(self, view: View) -> int:
        """The number of members failing the tests that are looked up, in each of their sets, before giving up."""
        sets = sum(len(clause.names) for clause in view.scope.clauses)
        return max(self.wanted + 16, (8 * self.wanted + 64) // sets)

    def _packed_bands(self) -> bytes:
        if self.measure == "exact":
            halves = (half for band in self.bands for end in band for half in _halves(end))
            return struct.pack(f">{4 * len(self.bands)}I", *halves)
        return struct.pack(f"<{2 * len(self.bands)}d", *chain.from_iterable(self.bands))


def _parse(reply: Any, view: View) -> Sample | None:
    word = reply[0]
    if word == b"not ranked":
        return None
    _, size, position, band, candidates, *drawn = reply
    step = 4 if word == b"ranked" else 3
    found = list(zip(drawn[::step], drawn[1::step], map(float, drawn[2::step]), strict=True))
    if view.ranking is None:
        return Sample(None, position, band - 1, candidates, found, None)
    return Sample(size, position, band - 1, candidates, found, drawn[3::4] if step == 4 else None)


def _packed(excluded: Excluded) -> str | bytes:
    """Integers take a tenth of the time: here, on the way and in the script."""
    if excluded and isinstance(excluded[0], int):
        packed = array("q", excluded)
        if sys.byteorder == "big":
            packed.byteswap()
        return b"q" + packed.tobytes()
    return "\0".join(("", *excluded, ""))


def _halves(number: Number) -> tuple[int, int]:
    """A distance of up to 64 bits as two numbers of 32."""
    return divmod(min(int(number), 2**64 - 1), 2**32)
