"""Sort keys, which order the members of all shards, and counts of what is before them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ... import scripts
from ...exceptions import FilterTooLarge
from ...keys import Keys
from ..request import Request, in_turn, merge
from ..view import View
from .shards import Shards

__all__ = ["Counted", "SortKey", "count_before", "count_values"]

_CHUNK: Final = 100
"""Sort keys per round trip; a quarter of them if each takes a search among ties."""

_VALUES: Final = 1000
"""Distinct values that a shard returns in one round trip."""

_MOST_VALUES: Final = 100_000
"""The most distinct values read for dense ranks. Shards share values, so counts can't be added up."""


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
    size = _CHUNK // 4 if view.method == "ordinal" or view.searches_ties else _CHUNK
    chunks = [sort_keys[at : at + size] for at in range(0, len(sort_keys) or 1, size)]
    counting = in_turn([_count(chunk, view, shards) for chunk in chunks]).then(_joined)
    if view.method != "dense" or not sort_keys:
        return counting
    ties = [(sort_key.score, view.layout.split(sort_key.stored)[0]) for sort_key in sort_keys]
    both: list[Request[Any]] = [counting, count_values(ties, view, shards)]
    return merge(both, spread=True).then(lambda found: found[0]._replace(before=found[1]))


def _count(sort_keys: Sequence[SortKey], view: View, shards: Shards) -> Request[Counted]:
    words = [word for sort_key in sort_keys for word in (repr(sort_key.score), sort_key.stored)]

    def ask(keys: Keys) -> Request[list[int]]:
        return view.read(keys, scripts.COUNT_BEFORE, (keys.generation, *view.order, *words), list)

    def add(replies: list[list[int]]) -> Counted:
        size, here, *counts = map(sum, zip(*replies, strict=True))
        return Counted(size, here, counts)

    return shards.each(ask).then(add)


def _joined(chunks: list[Counted]) -> Counted:
    before = [one for chunk in chunks for one in chunk.before]
    return Counted(chunks[-1].size, sum(chunk.here for chunk in chunks), before)


def count_values(bounds: Sequence[tuple[float, bytes]], view: View, shards: Shards) -> Request[list[int]]:
    """Count the distinct values that are better than bounds, each a score and a prefix of tie bytes.

    Reads the values of all shards, 1,000 of each in a round trip. Raises ``FilterTooLarge`` if there are too many.
    """
    worst = (min if view.reverse else max)(bounds)
    known: set[bytes] = set()

    def ask(keys: Keys, skipped: int) -> Request[list[Any]]:
        arguments = (keys.generation, view.order[2], repr(worst[0]), worst[1], skipped, _VALUES)
        return view.read(keys, scripts.READ_VALUES, arguments, list)

    def go_on(skipped: int) -> Request[list[int]]:
        def parse(replies: list[list[Any]]) -> list[int] | Request[list[int]]:
            for _, *values in replies:
                known.update(values)
            most = max(better for better, *_ in replies)
            if sum(better for better, *_ in replies) > _MOST_VALUES:
                raise FilterTooLarge(
                    f"dense ranks over shards are for up to {_MOST_VALUES:,} distinct values"
                )
            return go_on(skipped + _VALUES) if most > skipped + _VALUES else _ranked(known, bounds, view)

        return shards.each(lambda keys: ask(keys, skipped)).then(parse)

    return go_on(0)


def _ranked(values: set[bytes], bounds: Sequence[tuple[float, bytes]], view: View) -> list[int]:
    ordered = sorted((float(score), tie) for tie, score in map(view.layout.split, values))
    if not view.reverse:
        return [bisect_left(ordered, bound) for bound in bounds]

    def up_to(score: float, tie: bytes) -> int:
        return bisect_right(ordered, (score, tie), key=lambda value: (value[0], value[1][: len(tie)]))

    return [len(ordered) - up_to(*bound) for bound in bounds]
