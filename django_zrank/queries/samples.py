"""Samples of members, and the packed arguments of a draw."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import chain, compress
from math import inf, nextafter
from typing import Any, Final, NamedTuple

from ..codec.units import Number
from .positions import Locations
from .view import View

__all__ = ["NOBODY", "Excluded", "Progress", "Sample", "packed", "packed_bands", "parse_sample", "span"]

Excluded = Sequence[int] | Sequence[str]
"""Primary keys to exclude: integers below 2**53, including the asking member's; or any keys as text. Empty for none."""


class Sample(NamedTuple):
    """Members drawn at random."""

    size: int | None
    """Members in the ranking; None if filters were tested member by member, which finds no ranks."""

    position: int
    """The number of members below the asking one."""

    band: int
    """The number of the band that was used, from 0."""

    candidates: int | None
    """Members in that band, including excluded ones, without the asking one; None if they were not counted."""

    drawn: list[tuple[int, bytes, float]]
    """The position (0 has the lowest score), stored member and score of each, in the order of drawing."""

    before: list[int] | None
    """The rank of each, less 1; None for an ordinal rank, which follows from the position."""

    def without(self, excluded: Collection[str], view: View) -> Sample:
        """Return the sample without some members."""
        split = view.layout.split
        chosen = [split(stored)[1].decode() not in excluded for _, stored, _ in self.drawn]
        before = self.before and list(compress(self.before, chosen))
        return self._replace(drawn=list(compress(self.drawn, chosen)), before=before)

    def located(self, locations: Locations, view: View) -> Sample:
        """Return the sample with the ranks of its members; ``locations``: of the asking one, and of these."""
        me, *found = locations.found
        last = locations.size - 1 if view.reverse else 0
        there = [one for one in found if one is not None]
        return self._replace(
            size=locations.size,
            position=abs(last - me.position) if me else self.position,
            drawn=[(abs(last - one.position), one.stored, one.score) for one in there],
            before=None if view.method == "ordinal" else [one.before for one in there],
        )


class Progress(NamedTuple):
    """A draw that takes several round trips."""

    numbers: Callable[[int], bytes]
    """Returns random bytes, by their count: one function for all round trips."""

    band: int = 0
    """The number of the band to draw from, as earlier ones have too few members."""

    tested: int = 0
    """The number of members that were tested."""

    since: bytes = b""
    """The score of the asking member, which the bands depend on: if it changes, the draw begins again."""

    found: Sequence[bytes] = ()
    """The stored members drawn so far."""


def parse_sample(reply: Any, view: View, first: int = 0) -> Sample | None:
    """Parse the sample that a script has drawn; ``first``: the number of the first band that it was given."""
    word = reply[0]
    if word == b"not ranked":
        return None
    _, size, position, band, candidates, *drawn = reply
    band += first - 1  # scripts count from 1
    step = 4 if word == b"ranked" else 3
    found = list(zip(drawn[::step], drawn[1::step], map(float, drawn[2::step]), strict=True))
    if view.ranking is None:
        return Sample(None, position, band, candidates, found, None)
    return Sample(size, position, band, candidates, found, drawn[3::4] if step == 4 else None)


def span(bands: Sequence[tuple[Number, Number]], mine: float) -> tuple[str, str]:
    """Return the lowest and the highest score of bands around a score, with a margin for rounding."""
    low = min(mine - float(below) for below, _ in bands)
    high = max(mine + float(above) for _, above in bands)
    return repr(nextafter(low - abs(low) * 1e-12, -inf)), repr(nextafter(high + abs(high) * 1e-12, inf))


@lru_cache(maxsize=1024)
def packed_bands(bands: tuple[tuple[Number, Number], ...], measure: str) -> bytes:
    """Pack distances below and above as the scripts read them for this measure."""
    if measure == "exact":
        halves = (half for band in bands for end in band for half in _halves(end))
        return struct.pack(f">{4 * len(bands)}I", *halves)
    return struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands))


def packed(excluded: Excluded) -> str | bytes:
    """Pack primary keys as the scripts read them. Integers take a tenth of the time of text."""
    if excluded and isinstance(excluded[0], int):
        return struct.pack(f"<c{len(excluded)}q", b"q", *excluded)
    return "\0".join(("", *excluded, ""))


NOBODY: Final = packed(())


def _halves(number: Number) -> tuple[int, int]:
    """Split a distance of up to 64 bits into two halves of 32."""
    return divmod(min(int(number), 2**64 - 1), 2**32)
