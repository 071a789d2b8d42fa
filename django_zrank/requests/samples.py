"""Members drawn at random, and the arguments of a draw, packed as bytes."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from math import inf, nextafter
from typing import Any, Final, NamedTuple

from ..codec.units import Number
from .view import View

__all__ = ["NOBODY", "Excluded", "Progress", "Sample", "packed", "packed_bands", "parse_sample", "span"]

Excluded = Sequence[int] | Sequence[str]
"""Primary keys to exclude: integers below 2**53, with that of the member drawn for; or any, as text. Empty for none."""


class Sample(NamedTuple):
    """Members drawn at random."""

    size: int | None
    """Members in the ranking; None if several filters were tested one by one, which finds no ranks."""

    position: int
    """The number of members below the one drawn for."""

    band: int
    """The number of the band that was used, from 0."""

    candidates: int
    """Members in that band, the asking one not counted, the excluded ones counted."""

    drawn: list[tuple[int, bytes, float]]
    """Position (from 0 at the lowest score), stored member and score of each, in the order they were drawn."""

    before: list[int] | None
    """The rank of each, less 1; None for an ordinal rank, which follows from the position."""

    is_estimate: bool = False
    """True if ``candidates`` is an estimate."""


class Progress(NamedTuple):
    """A draw that takes several round trips."""

    numbers: Callable[[int], bytes]
    """Random bytes, by their count: the same function for all of them."""

    band: int = 0
    """The band that is drawn from; those before don't suffice."""

    tested: int = 0
    """The number of members that were tested."""

    since: bytes = b""
    """The score of the asking one, on which bands depend: where it changes, the draw begins again."""

    found: Sequence[bytes] = ()
    """Those drawn so far, as stored."""


def parse_sample(reply: Any, view: View, first: int = 0) -> Sample | None:
    """The sample that a script has drawn; ``first``: the number of the first band that it was given."""
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


def span(bands: Sequence[tuple[Number, Number]], progress: Progress) -> tuple[str, str]:
    """The scores from which the bands that are left are drawn, and some more where these are not exact."""
    mine, left = float(progress.since), bands[progress.band :]
    low = min(mine - float(below) for below, _ in left)
    high = max(mine + float(above) for _, above in left)
    return repr(nextafter(low - abs(low) * 1e-12, -inf)), repr(nextafter(high + abs(high) * 1e-12, inf))


@lru_cache(maxsize=1024)
def packed_bands(bands: tuple[tuple[Number, Number], ...], measure: str) -> bytes:
    """Distances below and above, packed as the scripts read them for this measure."""
    if measure == "exact":
        halves = (half for band in bands for end in band for half in _halves(end))
        return struct.pack(f">{4 * len(bands)}I", *halves)
    return struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands))


def packed(excluded: Excluded) -> str | bytes:
    """Primary keys as the scripts read them. Packed integers take a tenth of the time of text."""
    if excluded and isinstance(excluded[0], int):
        packed = array("q", excluded)
        if sys.byteorder == "big":
            packed.byteswap()
        return b"q" + packed.tobytes()
    return "\0".join(("", *excluded, ""))


NOBODY: Final = packed(())


def _halves(number: Number) -> tuple[int, int]:
    """A distance of up to 64 bits as two numbers of 32."""
    return divmod(min(int(number), 2**64 - 1), 2**32)
