"""Histograms of scores, as numbers for an SVG."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..codec.units import Float, Number
from ..index import RankIndex
from ..queries.counts import CountScores
from ..queries.pages import PageAt
from ..queries.view import View
from ..redis import reader_of

__all__ = ["Bar", "Histogram", "draw_histogram"]

BARS: Final = 40
WIDTH: Final = 800
HEIGHT: Final = 140

_GRAINS: Final = 10_000
"""The most grains of a logarithmic scale: parts of the range of scores that it doesn't divide further."""

_MANY: Final = 100
"""The range of scores from which on an axis has labels between its ends: rounded scores are near enough to them."""

_HEAD: Final = 12
"""Space above the highest bar, for the marked members."""


class Axis(NamedTuple):
    """The range of scores that a histogram shows, as Redis holds them."""

    start: float
    stop: float

    grains: float = 0
    """0 for a linear scale. Up to about one of so many parts from its start, a logarithmic scale is linear, too."""

    def share(self, score: float) -> float:
        """Return the position of a score, as a share of the axis's length."""
        # A difference of two floats may lie beyond all floats.
        start, stop, at = map(Fraction, (self.start, self.stop, min(self.stop, max(self.start, score))))
        done = float((at - start) / (stop - start)) if start < stop else 0.0
        return math.log1p(done * self.grains) / math.log1p(self.grains) if self.grains else done

    def score(self, share: float) -> float:
        """Return the score at a share of the axis's length."""
        if self.grains:
            share = math.expm1(share * math.log1p(self.grains)) / self.grains
        # Rounded, it may lie beyond.
        return min(self.stop, max(self.start, self.start * (1 - share) + self.stop * share))


class Bar(NamedTuple):
    """The number of members with scores from ``low`` to ``high``, and the position of their bar."""

    low: Any
    high: Any
    members: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """The numbers of members by their scores, with some members marked."""

    index: RankIndex
    low: Any
    high: Any
    """The first score and the last one, in the field's own type."""

    axis: Axis
    bars: Sequence[Bar]
    members: int

    band: tuple[float, float] | None = None
    """The position of the band, and its width."""

    own: float | None = None
    """The position of the member that others were drawn for."""

    drawn: Sequence[float] = ()
    """The positions of the members drawn."""

    width = WIDTH
    height = HEIGHT

    @property
    def ticks(self) -> Sequence[Any]:
        """The scores at the ends of the axis; also at its quarters, if they are whole numbers of a wide range."""
        if not (isinstance(self.low, int) and self.high - self.low >= _MANY):
            return self.low, self.high
        decode = self.index.ordering.first.kind.decode
        inner = (decode(round(self.axis.score(share))) for share in (0.25, 0.5, 0.75))
        return [f"{score:,}" for score in (self.low, *inner, self.high)]

    @property
    def fullest(self) -> Bar:
        return max(self.bars, key=lambda bar: bar.members)

    def marked(self, own: Number, drawn: Sequence[Number], band: tuple[Number, Number]) -> Histogram:
        """Return the histogram with a member, its band and those drawn for it."""
        unit = _unit(self.index)
        low, high = self._x(band[0]), self._x(band[1] + unit)
        return replace(
            self,
            own=self._x(own + unit / 2),
            drawn=[self._x(score + unit / 2) for score in drawn],
            band=(low, round(max(2.0, high - low), 2)),
        )

    def _x(self, score: float) -> float:
        return round(WIDTH * self.axis.share(score), 2)


def draw_histogram(
    index: RankIndex,
    view: View,
    low: Number | None = None,
    high: Number | None = None,
    *,
    is_logarithmic: bool = False,
) -> Histogram | None:
    """Return the histogram of a ranking between two scores, by default of all; None if no member is ranked.

    Each bar of a logarithmic scale covers more scores than the one before. The histogram takes two round trips for the
    ends, and one for 40 ZCOUNTs, for any number of members.
    """
    reader = reader_of(index)
    ends = [reader.answer(PageAt(0, 1), replace(view, reverse=reverse)).members for reverse in (False, True)]
    if not all(ends):
        return None
    lowest, highest = (members[0][1] for members in ends)
    start = lowest if low is None else max(lowest, low)
    end = max(start, highest if high is None else min(highest, high))
    axis, edges = _edges(start, end, _unit(index), is_logarithmic)
    *inner, last = pairwise(edges)
    ranges = [(repr(one), f"({other!r}") for one, other in inner] + [(repr(last[0]), repr(end))]
    counts = reader.answer(CountScores(tuple(ranges)), view)
    decode = index.ordering.first.kind.decode
    bars = list(_bars(index, axis, edges, end, counts))
    return Histogram(index, decode(start), decode(end), axis, bars, sum(counts))


def _unit(index: RankIndex) -> int:
    """Return the least difference between two scores: 1, or 0 for floats."""
    return 0 if isinstance(index.ordering.first.kind, Float) else 1


def _edges(start: float, end: float, unit: int, is_logarithmic: bool) -> tuple[Axis, list[float]]:
    """Return the axis, and the ends of up to 40 ranges of the same width on it."""
    if start == end:
        # A large score and one more may be the same float.
        stop = min(max(end + (unit or 1), math.nextafter(end, math.inf)), sys.float_info.max)
        axis = Axis(start, stop)
        return axis, [*axis[:2]]
    if is_logarithmic:
        stop = end + unit
        # Times are stored in microseconds: the first bars are no finer than a part of the range.
        axis = Axis(start, stop, min(_GRAINS, stop - start) if unit else _GRAINS)
        inner = (axis.score(at / BARS) for at in range(1, BARS))
        return axis, [
            start,
            *sorted({math.ceil(one) if unit else one for one in inner} - {start, stop}),
            stop,
        ]
    if unit:
        step = max(1, math.ceil((end - start + 1) / BARS))
        edges = [start + step * at for at in range(math.ceil((end - start + 1) / step) + 1)]
        return Axis(start, edges[-1]), edges
    axis = Axis(start, end)
    return axis, [*sorted(axis.score(at / BARS) for at in range(BARS)), end]


def _bars(
    index: RankIndex, axis: Axis, edges: Sequence[float], end: float, counts: Sequence[int]
) -> Iterator[Bar]:
    decode, unit, most = index.ordering.first.kind.decode, _unit(index), max(1, *counts)
    for (low, high), count in zip(pairwise(edges), counts, strict=True):
        x, stop = WIDTH * axis.share(low), WIDTH * axis.share(high)
        height = max(1.5, (HEIGHT - _HEAD) * count / most) if count else 0.0
        yield Bar(
            low=decode(low),
            high=decode(min(end, high - unit)),
            members=count,
            x=round(x, 2),
            y=round(HEIGHT - height, 2),
            width=round(max(1.0, stop - x - 1), 2),
            height=round(height, 2),
        )
