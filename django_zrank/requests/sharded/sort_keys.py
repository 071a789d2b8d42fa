"""Sort keys, which order the members of all shards, and counts of what is before them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import add
from typing import Any, Final, NamedTuple

from ... import scripts
from ...keys import Keys
from ..request import Request, in_turn, merge
from ..view import View
from .shards import Shards

__all__ = ["Counted", "SortKey", "count_before", "count_values"]

_CHUNK: Final = 100
"""Sort keys per round trip; a quarter of them if each takes a search among ties."""

_VALUES: Final = 1000
"""Distinct values that a shard returns in one round trip."""

Value = tuple[float, bytes]
"""A score, and tie bytes."""


class SortKey(NamedTuple):
    """The sort key of a member: orders the members of all shards."""

    score: float
    stored: bytes


class Counted(NamedTuple):
    """Counts of what is before some sort keys."""

    size: int

    here: int
    """The number of sort keys that are a member's."""

    before: list[int]
    """For each sort key, the number of members or values that rank better."""


def count_before(sort_keys: Sequence[SortKey], view: View, shards: Shards) -> Request[Counted]:
    """Count what is before sort keys. One round trip for 25 of them, or 100 if no ties are searched."""
    size = _size(view)
    chunks = [sort_keys[at : at + size] for at in range(0, len(sort_keys) or 1, size)]
    counting = in_turn([_count(chunk, view, shards) for chunk in chunks]).then(_joined)
    if view.method != "dense" or not sort_keys:
        return counting
    ties = [(sort_key.score, view.layout.split(sort_key.stored)[0]) for sort_key in sort_keys]
    both: list[Request[Any]] = [counting, count_values(ties, view, shards)]
    return merge(both, spread=True).then(lambda found: found[0]._replace(before=found[1]))


def _size(view: View) -> int:
    return _CHUNK // 4 if view.method == "ordinal" or view.searches_ties else _CHUNK


def _count(sort_keys: Sequence[SortKey], view: View, shards: Shards) -> Request[Counted]:
    words = [word for sort_key in sort_keys for word in (repr(sort_key.score), sort_key.stored)]
    cost = len(sort_keys) * (5 if _size(view) == _CHUNK else 40)

    def ask(keys: Keys) -> Request[list[int]]:
        return view.read(keys, scripts.COUNT_BEFORE, (keys.generation, *view.order, *words), list, cost)

    def summed(replies: list[list[int]]) -> Counted:
        size, here, *counts = map(sum, zip(*replies, strict=True))
        return Counted(size, here, counts)

    return shards.each(ask).then(summed)


def _joined(chunks: list[Counted]) -> Counted:
    before = [one for chunk in chunks for one in chunk.before]
    return Counted(chunks[-1].size, sum(chunk.here for chunk in chunks), before)


def count_values(bounds: Sequence[tuple[float, bytes]], view: View, shards: Shards) -> Request[list[int]]:
    """Count the distinct values that are better than bounds, each a score and a prefix of tie bytes.

    Shards share values, so their counts can't be added up. Reads the values of all shards, 1,000 of each at a time, and
    keeps those that another shard may still return.
    """
    reverse = view.reverse
    worst = (min if reverse else max)(bounds)
    split = view.layout.split

    def ask(keys: Keys, skipped: int) -> Request[list[Any]]:
        arguments = (keys.generation, view.order[2], repr(worst[0]), worst[1], skipped, _VALUES)
        return view.read(keys, scripts.READ_VALUES, arguments, list, _VALUES)

    def go_on(
        skipped: int, known: Sequence[Value] = (), counts: Sequence[int] = (), last: Value | None = None
    ) -> Request[list[int]]:
        """``counts`` are of the values up to ``last``; ``known`` are others."""

        def parse(replies: list[list[Any]]) -> list[int] | Request[list[int]]:
            values, ends = set(known), []
            for better, *texts in replies:
                found = [(float(score), tie) for tie, score in map(split, texts)]
                values.update(found)
                if better > skipped + _VALUES:
                    ends.append(found[-1])
            # One that others have pushed on since it was read is returned again.
            ordered = sorted(
                value for value in values if last is None or (value < last if reverse else value > last)
            )
            if not ends:
                return added(ordered)
            if reverse:
                end = max(ends)
                at = bisect_left(ordered, end)
                return go_on(skipped + _VALUES, ordered[:at], added(ordered[at:]), end)
            end = min(ends)
            at = bisect_right(ordered, end)
            return go_on(skipped + _VALUES, ordered[at:], added(ordered[:at]), end)

        def added(ordered: Sequence[Value]) -> list[int]:
            before = [_before(ordered, *bound, reverse=reverse) for bound in bounds]
            return list(map(add, counts, before)) if counts else before

        return shards.each(lambda keys: ask(keys, skipped)).then(parse)

    return go_on(0)


def _before(ordered: Sequence[Value], score: float, tie: bytes, *, reverse: bool) -> int:
    """The number of values, in ascending order, that are better than a bound."""
    if not reverse:
        return bisect_left(ordered, (score, tie))
    end = bisect_right(ordered, (score, tie), key=lambda value: (value[0], value[1][: len(tie)]))
    return len(ordered) - end
