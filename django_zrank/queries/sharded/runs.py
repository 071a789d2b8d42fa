"""Runs of members: each shard returns those next to a sort key, and these are merged as far as all runs reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from math import ceil, sqrt
from typing import Final, NamedTuple

from ...redis import scripts
from ...redis.keys import Keys
from ..pages import Page, PageAt, parse_page
from ..query import Query, together
from ..shards import Shards
from ..view import View
from .positions import SortKey

__all__ = ["NEAR", "Around", "merged", "read_around", "read_at", "share", "sort_keys_of"]

NEAR: Final = 64
"""The most members of a shard that are read to reach those wanted; for more, a nearer one is found first."""

_AT_ONCE: Final = 500
"""The most members on either side that a shard returns in one round trip."""

Spans = Callable[[int, int], tuple[int, int]]
"""A function from the size of the ranking and the number of members before a sort key to the numbers of members to
take before it, and from there on."""


class Around(NamedTuple):
    """Members of all shards around a sort key."""

    size: int

    positions: list[int]
    """For each shard, the number of its members before the sort key."""

    backs: list[tuple[list[SortKey], bool]]
    """For each shard, members before the sort key, the nearest first, and true if these are all."""

    aheads: list[tuple[list[SortKey], bool]]
    """For each shard, members from there on, and true if these are all."""

    reverse: bool

    @property
    def position(self) -> int:
        """The number of members before the sort key."""
        return sum(self.positions)

    def take(self, back: int, ahead: int) -> list[SortKey] | None:
        """Return members of all shards, best first; None if a shard may have more in this range than it returned."""
        before = merged(self.backs, back, not self.reverse)
        after = merged(self.aheads, ahead, self.reverse)
        return None if before is None or after is None else [*before[::-1], *after]


def share(count: int, shards: Shards) -> int:
    """Return a number that the members of one shard, among ``count`` consecutive ones, hardly ever exceed."""
    mean = count / len(shards.keys)
    return min(count, ceil(mean + 3 * sqrt(mean) + 3))


def merged(runs: Sequence[tuple[list[SortKey], bool]], count: int, descending: bool) -> list[SortKey] | None:
    """Merge runs into their first ``count`` members; None if an incomplete run may have more of these."""
    if not count:
        return []
    ends = [run[-1] if run else None for run, is_whole in runs if not is_whole]
    found = sorted(chain.from_iterable(run for run, _ in runs), reverse=descending)[:count]
    if not ends:
        return found
    if None in ends or len(found) < count:
        return None
    known = filter(None, ends)
    return found if (found[-1] >= max(known) if descending else found[-1] <= min(known)) else None


def sort_keys_of(page: Page) -> list[SortKey]:
    return [SortKey(score, stored) for stored, score in page.members]


def read_around(
    sort_key: SortKey, spans: Spans, want: int, view: View, shards: Shards
) -> Query[tuple[Around, list[SortKey]]]:
    """Read members around a sort key. ``want``: the number first asked of each shard on either side."""
    while True:
        around = yield from _around(sort_key, want, view, shards)
        back, ahead = spans(around.size, around.position)
        found = around.take(back, ahead)
        if found is not None:
            return around, found
        most = max(back, ahead)
        want = min(most, max(4 * want, share(most, shards)))


def _around(sort_key: SortKey, want: int, view: View, shards: Shards) -> Query[Around]:
    plain = view.by("ordinal")
    pages = yield from shards.each(lambda keys: _page_around(sort_key, want, plain, keys))
    positions, backs, aheads = [], [], []
    for page in pages:
        members = sort_keys_of(page)
        at = sum(one > sort_key if view.reverse else one < sort_key for one in members)
        positions.append(page.first + at)
        backs.append((members[:at][::-1], page.first == 0))
        aheads.append((members[at:], len(members) >= page.following))
    return Around(sum(page.size for page in pages), positions, backs, aheads, view.reverse)


def _page_around(sort_key: SortKey, want: int, view: View, keys: Keys) -> Query[Page]:
    """Return ``want`` members of one shard on either side of a sort key."""
    near = min(want, _AT_ONCE)
    start = ("sort key", repr(sort_key.score), sort_key.stored, near)
    arguments = (keys.generation, *view.order, near, 2 * near, *start)
    page: Page = parse_page((yield from view.read(keys, scripts.READ_PAGE, arguments, 4 * near)))  # type: ignore[assignment]
    begin, end = page.first, page.first + len(page.members)
    first, last = max(0, begin - want + near), min(page.size, end + want - near)
    spans = [(at, count) for at, count in ((first, begin - first), (end, last - end)) if count > 0]
    if want == near or not spans:
        return page
    read = [*page.members]
    for span in spans:
        read = (yield from PageAt(*span).query(view, keys)).members + read
    found = {view.layout.split(stored)[1]: (stored, score) for stored, score in read}
    members = sorted(found.values(), key=lambda one: (one[1], one[0]), reverse=view.reverse)
    # Members that move meanwhile may be missed, or read twice: those up to the end are whole all the same.
    following = len(members) if last == page.size else page.size - first
    return page._replace(first=first, members=members, following=following)


def read_at(first: int, limit: int, view: View, shards: Shards) -> Query[tuple[int, list[SortKey]]]:
    """Read the size of the ranking, and the members from a position on, however deep.

    Each shard returns the member at the page's share of its positions; the median of these is a pivot near the page.
    The number of members before the pivot gives the distance, and the next pivot is nearer by a square root.
    """
    plain = view.by("ordinal")

    def spans(size: int, position: int) -> tuple[int, int]:
        end = min(size, first + limit)
        return max(0, position - first), max(0, end - position)

    while True:
        pages = yield from shards.each(lambda keys: PageAt(0, 0).query(plain, keys))
        # From the positions ``low`` of the shards up to ``high``: ``first`` lies between their sums.
        low, high = [0] * len(pages), [page.size for page in pages]
        if first >= sum(high):
            return sum(high), []
        while pivot := (yield from _pivot(first, low, high, plain, shards)):
            around = yield from _around(pivot, share(limit, shards), view, shards)
            away = first - around.position
            if abs(away) > 8 * limit + NEAR * len(shards.keys):
                low, high = (around.positions, high) if away > 0 else (low, around.positions)
                continue
            found = around.take(*spans(around.size, around.position))
            if found is None:
                want = share(abs(away) + limit, shards)
                around, found = yield from read_around(pivot, spans, want, view, shards)
            skipped = max(0, first - around.position)
            return around.size, found[skipped : skipped + limit]


def _pivot(first: int, low: list[int], high: list[int], view: View, shards: Shards) -> Query[SortKey | None]:
    """Return the median, weighted by their ranges, of the shards' members at their share of a position; None if all
    have left."""
    start, end = sum(low), sum(high)
    ranges = [(at, a, b) for at, (a, b) in enumerate(zip(low, high, strict=True)) if a < b]
    guesses = [
        PageAt(a + (b - a) * (first - start) // (end - start), 1).query(view, shards.keys[at])
        for at, a, b in ranges
    ]
    pages = yield from together(guesses, spread=True)
    weights = {
        sort_key: b - a
        for (_, a, b), page in zip(ranges, pages, strict=True)
        for sort_key in sort_keys_of(page)
    }
    ordered = sorted(weights, reverse=view.reverse)
    half = sum(weights.values()) / 2
    sums = accumulate(weights[sort_key] for sort_key in ordered)
    return next((sort_key for sort_key, so_far in zip(ordered, sums, strict=True) if so_far >= half), None)
