"""Runs of members: each shard returns those next to a sort key, and these are merged as far as all runs reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from math import ceil, sqrt
from typing import Final, NamedTuple

from ... import scripts
from ...keys import Keys
from ..pages import Page, PageAt, parse_page
from ..request import Request, in_turn, merge
from ..view import View
from .shards import Shards
from .sort_keys import SortKey

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
) -> Request[tuple[Around, list[SortKey]]]:
    """Read members around a sort key. ``want``: the number first asked of each shard on either side."""

    def take(around: Around) -> tuple[Around, list[SortKey]] | Request[tuple[Around, list[SortKey]]]:
        back, ahead = spans(around.size, around.position)
        found = around.take(back, ahead)
        if found is not None:
            return around, found
        most = max(back, ahead)
        return read_around(sort_key, spans, min(most, max(4 * want, share(most, shards))), view, shards)

    return _around(sort_key, want, view, shards).then(take)


def _around(sort_key: SortKey, want: int, view: View, shards: Shards) -> Request[Around]:
    by_position, near = view.by("ordinal"), min(want, _AT_ONCE)

    def ask(keys: Keys) -> Request[Page]:
        start = ("sort key", repr(sort_key.score), sort_key.stored, near)
        arguments = (keys.generation, *by_position.order, near, 2 * near, *start)
        nearest: Request[Page] = view.read(keys, scripts.READ_PAGE, arguments, parse_page, 4 * near)  # type: ignore[arg-type]
        return nearest.then(lambda page: further(page, keys))

    def further(page: Page, keys: Keys) -> Page | Request[Page]:
        start, end = page.first, page.first + len(page.members)
        first, last = max(0, start - want + near), min(page.size, end + want - near)
        spans = [(at, count) for at, count in ((first, start - first), (end, last - end)) if count > 0]
        if want == near or not spans:
            return page

        def joined(pages: list[Page]) -> Page:
            read = (one for page in (*pages, page) for one in page.members)
            found = {view.layout.split(stored)[1]: (stored, score) for stored, score in read}
            members = sorted(found.values(), key=lambda one: (one[1], one[0]), reverse=view.reverse)
            # Members that move meanwhile may be missed, or read twice: those up to the end are whole all the same.
            following = len(members) if last == page.size else page.size - first
            return page._replace(first=first, members=members, following=following)

        return in_turn([PageAt(*span).request(by_position, keys) for span in spans]).then(joined)

    def split(pages: list[Page]) -> Around:
        positions, backs, aheads = [], [], []
        for page in pages:
            members = sort_keys_of(page)
            at = sum(one > sort_key if view.reverse else one < sort_key for one in members)
            positions.append(page.first + at)
            backs.append((members[:at][::-1], page.first == 0))
            aheads.append((members[at:], len(members) >= page.following))
        return Around(sum(page.size for page in pages), positions, backs, aheads, view.reverse)

    return shards.each(ask).then(split)


def read_at(first: int, limit: int, view: View, shards: Shards) -> Request[tuple[int, list[SortKey]]]:
    """Read the size of the ranking, and the members from a position on, however deep.

    Each shard returns the member at the page's share of its positions; the median of these is a pivot near the page.
    The number of members before the pivot gives the distance, and the next pivot is nearer by a square root.
    """
    plain = view.by("ordinal")

    def begin() -> Request[tuple[int, list[SortKey]]]:
        return shards.each(lambda keys: PageAt(0, 0).request(plain, keys)).then(look_everywhere)

    def look_everywhere(pages: list[Page]) -> tuple[int, list[SortKey]] | Request[tuple[int, list[SortKey]]]:
        sizes = [page.size for page in pages]
        return look([0] * len(sizes), sizes) if first < sum(sizes) else (sum(sizes), [])

    def look(low: list[int], high: list[int]) -> Request[tuple[int, list[SortKey]]]:
        """From the positions ``low`` of the shards up to ``high``: ``first`` lies between their sums."""
        start, end = sum(low), sum(high)
        spread = [(i, a, b) for i, (a, b) in enumerate(zip(low, high, strict=True)) if a < b]
        guesses = [
            PageAt(a + (b - a) * (first - start) // (end - start), 1).request(plain, shards.keys[i])
            for i, a, b in spread
        ]

        def choose(pages: list[Page]) -> Request[tuple[int, list[SortKey]]]:
            weights = {
                sort_key: b - a
                for (_, a, b), page in zip(spread, pages, strict=True)
                for sort_key in sort_keys_of(page)
            }
            if not weights:
                return begin()
            ordered = sorted(weights, reverse=view.reverse)
            half = sum(weights.values()) / 2
            sums = accumulate(weights[sort_key] for sort_key in ordered)
            return measure(
                next(sort_key for sort_key, so_far in zip(ordered, sums, strict=True) if so_far >= half)
            )

        def measure(pivot: SortKey) -> Request[tuple[int, list[SortKey]]]:
            def go_on(around: Around) -> tuple[int, list[SortKey]] | Request[tuple[int, list[SortKey]]]:
                away = first - around.position
                if abs(away) > 8 * limit + NEAR * len(shards.keys):
                    return look(around.positions, high) if away > 0 else look(low, around.positions)
                found = around.take(*spans(around.size, around.position))
                if found is not None:
                    return finish((around, found))
                want = share(abs(away) + limit, shards)
                return read_around(pivot, spans, want, view, shards).then(finish)

            return _around(pivot, share(limit, shards), view, shards).then(go_on)

        return merge(guesses, spread=True).then(choose)

    def spans(size: int, position: int) -> tuple[int, int]:
        end = min(size, first + limit)
        return max(0, position - first), max(0, end - position)

    def finish(read: tuple[Around, list[SortKey]]) -> tuple[int, list[SortKey]]:
        around, found = read
        skipped = max(0, first - around.position)
        return around.size, found[skipped : skipped + limit]

    return begin()
