"""Histograms of scores, as numbers for an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..codec.kinds import Float
from ..codec.units import Number
from ..index import RankIndex
from ..queries.histogram import CountScores
from ..queries.pages import PageAt
from ..queries.view import View
from ..redis import reader_of

__all__ = ["Bar", "Histogram", "draw_histogram"]

BARS: Final = 40
WIDTH: Final = 800
HEIGHT: Final = 140

_HEAD: Final = 12
"""Space above the highest bar, for the marked members."""


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

    start: float
    stop: float
    """The ends of the axis, as Redis holds scores."""

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
        span = self.stop - self.start
        share = (score - self.start) / span if span else 0.5
        return round(WIDTH * min(1.0, max(0.0, share)), 2)


def draw_histogram(
    index: RankIndex, view: View, low: Number | None = None, high: Number | None = None
) -> Histogram | None:
    """Return the histogram of a ranking between two scores, by default of all; None if nobody is ranked.

    It takes two round trips for the ends, and one for 40 ZCOUNTs, for any number of members.
    """
    reader = reader_of(index)
    ends = [reader.answer(PageAt(0, 1), replace(view, reverse=reverse)).members for reverse in (False, True)]
    if not all(ends):
        return None
    lowest, highest = (members[0][1] for members in ends)
    start = lowest if low is None else max(lowest, low)
    end = max(start, highest if high is None else min(highest, high))
    edges = _edges(start, end, _unit(index))
    *inner, last = pairwise(edges)
    ranges = [(repr(one), f"({other!r}") for one, other in inner] + [(repr(last[0]), repr(end))]
    counts = reader.answer(CountScores(tuple(ranges)), view)
    decode = index.ordering.first.kind.decode
    bars = list(_bars(index, edges, end, counts))
    return Histogram(index, decode(start), decode(end), edges[0], edges[-1], bars, sum(counts))


def _unit(index: RankIndex) -> int:
    """Return the least difference between two scores: 1, or 0 for floats."""
    return 0 if isinstance(index.ordering.first.kind, Float) else 1


def _edges(start: float, end: float, unit: int) -> list[float]:
    """Return the ends of up to 40 ranges of the same width."""
    if start == end:
        return [start, end + unit]
    if unit:
        step = max(1, math.ceil((end - start + 1) / BARS))
        return [start + step * at for at in range(math.ceil((end - start + 1) / step) + 1)]
    return [start + (end - start) * at / BARS for at in range(BARS)] + [end]


def _bars(index: RankIndex, edges: Sequence[float], end: float, counts: Sequence[int]) -> Iterator[Bar]:
    decode, unit = index.ordering.first.kind.decode, _unit(index)
    width, most = WIDTH / len(counts), max(1, *counts)
    for at, count in enumerate(counts):
        height = max(1.5, (HEIGHT - _HEAD) * count / most) if count else 0.0
        yield Bar(
            low=decode(edges[at]),
            high=decode(min(end, edges[at + 1] - unit)),
            members=count,
            x=round(at * width, 2),
            y=round(HEIGHT - height, 2),
            width=round(width - 1, 2),
            height=round(height, 2),
        )
