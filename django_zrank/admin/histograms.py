"""Histograms of scores, as numbers for an SVG."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..codec.kinds import Kind
from ..codec.units import Number
from ..queries.pages import PageAt
from ..queries.steps import Several
from ..ranking import Ranking
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
    """The range of scores that a histogram shows, as keys of their kind."""

    start: Number
    stop: Number

    grains: float = 0
    """0 for a linear scale. Up to about one of so many parts from its start, a logarithmic scale is linear, too."""

    def x(self, key: float) -> float:
        """Return the position of a score."""
        # A difference of two floats may lie beyond all floats.
        start, stop, at = map(Fraction, (self.start, self.stop, min(self.stop, max(self.start, key))))
        done = float((at - start) / (stop - start)) if start < stop else 0.0
        return WIDTH * (math.log1p(done * self.grains) / math.log1p(self.grains) if self.grains else done)

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

    kind: Kind
    axis: Axis
    bars: Sequence[Bar]

    band: tuple[float, float] | None = None
    """The position of the band, and its width."""

    own: float | None = None
    """The position of the member that others were drawn for."""

    drawn: Sequence[float] = ()
    """The positions of the members drawn."""

    width = WIDTH
    height = HEIGHT

    @property
    def low(self) -> Any:
        return self.bars[0].low

    @property
    def high(self) -> Any:
        return self.bars[-1].high

    @property
    def members(self) -> int:
        return sum(bar.members for bar in self.bars)

    @property
    def fullest(self) -> Bar:
        return max(self.bars, key=lambda bar: bar.members)

    @property
    def ticks(self) -> Sequence[Any]:
        """The scores at the ends of the axis; also at its quarters, if they are whole numbers of a wide range."""
        if not (isinstance(self.low, int) and self.high - self.low >= _MANY):
            return self.low, self.high
        inner = (self.kind.at(round(self.axis.score(share))) for share in (0.25, 0.5, 0.75))
        return [f"{score:,}" for score in (self.low, *inner, self.high)]

    def marked(self, own: Number, drawn: Sequence[Number], band: tuple[Number, Number]) -> Histogram:
        """Return the histogram with a member, its band and those drawn for it."""
        unit, x = self.kind.step, self.axis.x
        low, high = x(band[0]), x(band[1] + unit)
        return replace(
            self,
            own=round(x(own + unit / 2), 2),
            drawn=[round(x(score + unit / 2), 2) for score in drawn],
            band=(round(low, 2), round(max(2.0, high - low), 2)),
        )


def draw_histogram(
    ranking: Ranking[Any],
    low: Number | None = None,
    high: Number | None = None,
    *,
    is_logarithmic: bool = False,
) -> Histogram | None:
    """Return the histogram of a ranking between two scores, by default of all; None if no member is ranked.

    Each bar of a logarithmic scale covers more scores than the one before. The histogram takes two round trips for the
    ends, and one for 40 counts, for any number of members. Only Redis is asked.
    """
    kind, reader = ranking.index.ordering.first.kind, reader_of(ranking.index)
    pages = [one._entries(reader.answer(PageAt(0, 1), one.view)) for one in (ranking, ranking.reversed())]
    if not all(pages):
        return None
    lowest, highest = sorted(kind.key(page[0].score) for page in pages)
    start = lowest if low is None else max(lowest, low)
    end = max(start, highest if high is None else min(highest, high))
    axis, ranges = (_logarithmic if is_logarithmic and start < end else _linear)(kind, start, end)
    scores = [(kind.at(first), kind.at(last)) for first, last in ranges]
    questions = Several([ranking._between(*ends, limit=0) for ends in scores])
    counts = [page.following for page in reader.answer(questions, ranking.view)]
    edges, most = [axis.x(first) for first, _ in ranges] + [axis.x(axis.stop)], max(1, *counts)
    bars = []
    for ends, (x, stop), count in zip(scores, pairwise(edges), counts, strict=True):
        height = max(1.5, (HEIGHT - _HEAD) * count / most) if count else 0.0
        place = (x, HEIGHT - height, max(1.0, stop - x - 1), height)
        bars.append(Bar(*ends, count, *(round(one, 2) for one in place)))
    return Histogram(kind, axis, bars)


def _linear(kind: Kind, start: Number, end: Number) -> tuple[Axis, list[tuple[Number, Number]]]:
    """Return the axis, and up to 40 ranges of the same width on it, with their ends."""
    ranges = kind.ranges(start, end, BARS)
    if kind.step:
        first, last = ranges[0]
        return Axis(start, ranges[-1][0] + last - first + 1), ranges
    # A large score and one more may be the same float.
    beyond = min(max(end + 1, math.nextafter(end, math.inf)), sys.float_info.max)
    return Axis(start, end if start < end else beyond), ranges


def _logarithmic(kind: Kind, start: Number, end: Number) -> tuple[Axis, list[tuple[Number, Number]]]:
    """Return the axis, and up to 40 ranges of the same width on it, with their ends."""
    unit = kind.step
    stop = end + unit
    # Times are stored in microseconds: the first bars are no finer than a part of the range.
    axis = Axis(start, stop, min(_GRAINS, stop - start) if unit else _GRAINS)
    inner = (axis.score(at / BARS) for at in range(1, BARS))
    edges = {math.ceil(one) if unit else one for one in inner} - {start, stop}
    ranges = pairwise([start, *sorted(edges), stop])
    *all_but_last, (last, _) = (
        (low, high - 1 if unit else math.nextafter(high, low)) for low, high in ranges
    )
    return axis, [*all_but_last, (last, end)]
