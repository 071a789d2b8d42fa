"""Distinct values over the shards of an index, which share them: their counts can't be added up."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from ..methods import Value
from ..queries.steps import Steps
from ..queries.view import View
from .members import Shards

__all__ = ["count_values"]

_VALUES: Final = 1000
"""Distinct values that a shard returns in one round trip."""


def count_values(view: View, shards: Shards, bounds: Sequence[Value]) -> Steps[list[int]]:
    """Count the distinct values that are better than bounds, each a score and a prefix of tie bytes.

    Reads the values of all shards, 1,000 of each at a time, and keeps those that another shard may still return.
    """
    reverse = view.reverse
    worst, nearest = (min(bounds), max) if reverse else (max(bounds), min)
    counts, known, last, skipped = [0] * len(bounds), set[Value](), None, 0

    def is_after(value: Value, other: Value) -> bool:
        return value < other if reverse else value > other

    while True:
        replies = yield from shards.each(
            lambda keys, skipped=skipped: view.ranks.read_values(view, keys, worst, skipped, _VALUES)
        )
        ends = []
        for better, found in replies:
            # One that others have pushed on since it was read is returned again.
            known.update(value for value in found if last is None or is_after(value, last))
            if better > skipped + _VALUES:
                ends.append(found[-1])
        counting = known
        if ends:
            last = nearest(ends)
            counting = {value for value in known if not is_after(value, last)}
        ordered = sorted(counting)
        for at, bound in enumerate(bounds):
            counts[at] += _better(ordered, *bound, reverse=reverse)
        if not ends:
            return counts
        known, skipped = known - counting, skipped + _VALUES


def _better(ordered: Sequence[Value], score: float, tie: bytes, *, reverse: bool) -> int:
    """The number of values, in ascending order, that are better than a bound."""
    if not reverse:
        return bisect_left(ordered, (score, tie))
    end = bisect_right(ordered, (score, tie), key=lambda value: (value[0], value[1][: len(tie)]))
    return len(ordered) - end
