"""Positions over shards: a member's own shard returns its sort key, which orders the members of all shards; then all
count what is before it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import add
from typing import Any, Final, NamedTuple

from ...redis import scripts
from ..positions import BarePosition, Locate, Location, Locations
from ..query import Query, together
from ..shards import Shards
from ..view import View

__all__ = ["Counted", "SortKey", "bare_position", "count_before", "count_values", "find_sort_keys", "locate"]

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


def count_before(sort_keys: Sequence[SortKey], view: View, shards: Shards) -> Query[Counted]:
    """Count what is before sort keys. One round trip for 25 of them, or 100 if no ties are searched."""
    size = _size(view)
    chunks = [sort_keys[at : at + size] for at in range(0, len(sort_keys) or 1, size)]
    counting = _count_chunks(chunks, view, shards)
    if view.method != "dense" or not sort_keys:
        return (yield from counting)
    ties = [(sort_key.score, view.layout.split(sort_key.stored)[0]) for sort_key in sort_keys]
    both: list[Query[Any]] = [counting, count_values(ties, view, shards)]
    counted, before = yield from together(both, spread=True)
    return counted._replace(before=before)  # type: ignore[no-any-return]


def _count_chunks(chunks: Sequence[Sequence[SortKey]], view: View, shards: Shards) -> Query[Counted]:
    counted = Counted(0, 0, [])
    for chunk in chunks:
        size, here, before = yield from _count(chunk, view, shards)
        counted = Counted(size, counted.here + here, counted.before + before)
    return counted


def _size(view: View) -> int:
    return _CHUNK // 4 if view.method == "ordinal" or view.searches_ties else _CHUNK


def _count(sort_keys: Sequence[SortKey], view: View, shards: Shards) -> Query[Counted]:
    words = [word for sort_key in sort_keys for word in (repr(sort_key.score), sort_key.stored)]
    cost = len(sort_keys) * (5 if _size(view) == _CHUNK else 40)
    replies = yield from shards.each(
        lambda keys: view.read(keys, scripts.COUNT_BEFORE, (keys.generation, *view.order, *words), cost)
    )
    size, here, *counts = map(sum, zip(*replies, strict=True))
    return Counted(size, here, counts)


def count_values(bounds: Sequence[Value], view: View, shards: Shards) -> Query[list[int]]:
    """Count the distinct values that are better than bounds, each a score and a prefix of tie bytes.

    Shards share values, so their counts can't be added up. Reads the values of all shards, 1,000 of each at a time, and
    keeps those that another shard may still return.
    """
    reverse, split = view.reverse, view.layout.split
    worst = (min if reverse else max)(bounds)
    counts = [0] * len(bounds)
    known: set[Value] = set()
    last: Value | None = None  # Values up to this one are counted.
    skipped = 0
    while True:
        arguments = (view.order[2], repr(worst[0]), worst[1], skipped, _VALUES)
        replies = yield from shards.each(
            lambda keys, given=arguments: view.read(
                keys, scripts.READ_VALUES, (keys.generation, *given), _VALUES
            )
        )
        ends = []
        for better, *texts in replies:
            found = [(float(score), tie) for tie, score in map(split, texts)]
            known.update(found)
            if better > skipped + _VALUES:
                ends.append(found[-1])
        # One that others have pushed on since it was read is returned again.
        ordered = sorted(
            value for value in known if last is None or (value < last if reverse else value > last)
        )
        if not ends:
            counting = ordered
        elif reverse:
            last = max(ends)
            at = bisect_left(ordered, last)
            ordered, counting = ordered[:at], ordered[at:]
        else:
            last = min(ends)
            at = bisect_right(ordered, last)
            counting, ordered = ordered[:at], ordered[at:]
        counts = list(map(add, counts, (_before(counting, *bound, reverse=reverse) for bound in bounds)))
        if not ends:
            return counts
        known, skipped = set(ordered), skipped + _VALUES


def _before(ordered: Sequence[Value], score: float, tie: bytes, *, reverse: bool) -> int:
    """The number of values, in ascending order, that are better than a bound."""
    if not reverse:
        return bisect_left(ordered, (score, tie))
    end = bisect_right(ordered, (score, tie), key=lambda value: (value[0], value[1][: len(tie)]))
    return len(ordered) - end


def locate(question: Locate, view: View, shards: Shards) -> Query[Locations]:
    """Locations of members. Two round trips for 25 of them; one if their sort keys are known. With methods other than
    ordinal, positions only order these members."""
    ordinal = view.method == "ordinal"
    sort_keys: Sequence[SortKey | None] = [*map(SortKey._make, question.sort_keys)]
    # Once more if a member has moved between the two round trips, and if sort keys that were given are old.
    attempts = 1 if sort_keys and not question.checked else 3 if sort_keys else 2
    while True:
        if question.members and not sort_keys:
            found = yield from find_sort_keys(question.members, view, shards)
            sort_keys = [*map(found.get, question.members)]
        counting = list(dict.fromkeys(filter(None, sort_keys)))
        counted = yield from count_before(counting, view, shards)
        attempts -= 1
        if counted.here == len(counting) or not attempts:
            break
        sort_keys = ()
    order = {sort_key: at for at, sort_key in enumerate(sorted(counting, reverse=view.reverse))}
    locations = {
        one: Location(before if ordinal else order[one], before, one.stored, one.score)
        for one, before in zip(counting, counted.before, strict=True)
    }
    return Locations(counted.size, [sort_key and locations[sort_key] for sort_key in sort_keys])


def bare_position(question: BarePosition, view: View, shards: Shards) -> Query[int | None]:
    sort_keys = [question.sort_key] if question.sort_key else []
    _, (found,) = yield from locate(Locate([question.member], sort_keys, checked=True), view, shards)
    return found and found.position


def find_sort_keys(members: Sequence[str], view: View, shards: Shards) -> Query[dict[str, SortKey]]:
    """Look up the sort keys of those members that are ranked."""
    split = shards.split(dict.fromkeys(members))
    view = view.by("ordinal")
    queries = [Locate(own).query(view, shards.keys[shard]) for shard, own in split.items()]
    answers = yield from together(queries, spread=True)
    return {
        member: SortKey(location.score, location.stored)
        for own, (_, found) in zip(split.values(), answers, strict=True)
        for member, location in zip(own, found, strict=True)
        if location
    }
