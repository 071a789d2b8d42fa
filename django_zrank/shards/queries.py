"""Questions about an index in shards, in steps to several of them.

A member's own shard returns its sort key, which orders the members of all shards; then all count what is before it, or
return their members next to it, which are merged as far as all of these runs reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, chain
from math import ceil, sqrt
from typing import Any, Final, NamedTuple, TypeVar

from ..codec.units import LAST, NUL
from ..queries.counts import CountFacet, Size
from ..queries.draws import Draw, Ends, Sample
from ..queries.pages import (
    Page,
    PageAbove,
    PageAround,
    PageAt,
    PageBeside,
    PageBetween,
    TopByCommand,
    parse_page,
)
from ..queries.positions import Locate, Location, Locations, Placement, Placements, PositionByCommand
from ..queries.request import FULL, Call, Request
from ..queries.steps import Question, Several, Steps, together
from ..queries.view import View
from ..redis import scripts
from ..redis.keys import Keys
from .draws import DrawingTogether, Moved, drawing_over_shards
from .members import Shards
from .values import count_values

__all__ = ["COUNT_BEFORE", "ShardedView", "Shards", "over_shards"]

Answer = TypeVar("Answer")

COUNT_BEFORE: Final = scripts.Script("count_before", __package__ or "")

NEAR: Final = 64
"""The most members of a shard that are read to reach those wanted; for more, a nearer one is found first."""

_AT_ONCE: Final = 500
"""The most members on either side that a shard returns in one round trip."""

_CHUNK: Final = 100
"""Sort keys per round trip; a quarter of them if each takes a search among ties."""


class SortKey(NamedTuple):
    """The sort key of a member: orders the members of all shards."""

    score: float
    stored: bytes


_Named = tuple[int, str, bytes | str]
"""A sort key as the script takes it: the number of the shard of its member, from 0, the score as text, and the stored
member. Without a score, the primary key of a member that is looked up."""

Run = tuple[list[SortKey], bool]
"""Consecutive members of a shard, and true if it has no more in this direction."""

Spans = Callable[[int, int], tuple[int, int]]
"""A function from the size of the ranking and the number of members before a sort key to the numbers of members to
take before it, and from there on."""


class Counted(NamedTuple):
    """Counts of what is before some sort keys."""

    size: int

    here: int
    """The number of sort keys that are a member's."""

    before: list[int]
    """For each sort key, the number of members or values that rank better."""


class Around(NamedTuple):
    """Members of all shards around a sort key."""

    size: int

    positions: list[int]
    """For each shard, the number of its members before the sort key."""

    backs: list[Run]
    """The members of each shard before the sort key, the nearest first."""

    aheads: list[Run]
    """The members of each shard from there on."""

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


def merged(runs: Sequence[Run], count: int, descending: bool) -> list[SortKey] | None:
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


class ShardedView:
    """The members of a view in several shards. Each method returns steps."""

    def __init__(self, view: View, shards: Shards) -> None:
        # A combined filter is made in each shard.
        self.view, self.shards = view, shards.apart() if view.ranking is None else shards

    @cached_property
    def plain(self) -> View:
        """The same members by ordinal ranks."""
        return self.view.by("ordinal")

    def share(self, count: int) -> int:
        """Return a number that the members of one shard, among ``count`` consecutive ones, hardly ever exceed."""
        mean = count / len(self.shards.keys)
        return min(count, ceil(mean + 3 * sqrt(mean) + 3))

    def is_near(self, count: int) -> bool:
        """Return True if so many members are read from one end rather than around one near them."""
        return count <= NEAR * len(self.shards.keys)

    # Positions

    def find_sort_keys(self, members: Iterable[str]) -> Steps[dict[str, SortKey]]:
        """Look up the sort keys of those members that are ranked."""
        split = self.shards.split(dict.fromkeys(members))
        several = [Locate(own).steps(self.plain, self.shards.keys[shard]) for shard, own in split.items()]
        answers = yield from together(several)
        return {
            member: SortKey(location.score, location.stored)
            for own, (_, found) in zip(split.values(), answers, strict=True)
            for member, location in zip(own, found, strict=True)
            if location
        }

    def count_before(self, sort_keys: Sequence[SortKey]) -> Steps[Counted]:
        """Count what is before sort keys. One round trip for 25 of them, or 100 if no ties are searched."""
        split, of = self.view.layout.split, self.shards.of
        named = [(of(split(stored)[1]), repr(score), stored) for score, stored in sort_keys]
        if not self.view.ranks.is_distinct or not sort_keys:
            return Counted(*(yield from self._count(named)))
        values = [(score, split(stored)[0]) for score, stored in sort_keys]
        both: list[Steps[Any]] = [self._count(named), count_values(self.view, self.shards, values)]
        (size, here, _), before = yield from together(both)
        return Counted(size, here, before)

    def _count(self, named: Sequence[_Named], *, is_sized: bool = True) -> Steps[tuple[int, int, list[Any]]]:
        """Return the size of the ranking, the number of sort keys that are a member's, and what the script replies for
        each: of all shards together."""
        count = len(self.shards.keys)
        is_searched = self.view.method == "ordinal" or self.view.searches_ties
        most, each = (_CHUNK // 4, 40) if is_searched else (_CHUNK, 5)
        size, here, found = 0, 0, list[Any]()
        for first in range(0, len(named) or 1, most):
            some = named[first : first + most]
            if self.shards.are_together:
                in_a_call = max(1, FULL // (each * count))
                parts = [some[at : at + in_a_call] for at in range(0, len(some) or 1, in_a_call)]
                replies = yield Request([self._call(part, each * count, is_sized) for part in parts])
                size = replies[0][0]
                here += sum(reply[1] for reply in replies)
                found += [count for reply in replies for count in reply[2:]]
            else:
                replies = yield from self.shards.each(partial(self._count_in, some, each))
                size, more, *counts = map(sum, zip(*replies, strict=True))
                here, found = here + more, found + counts
        return size, here, found

    def _call(self, named: Sequence[_Named], each: int, is_sized: bool) -> Call:
        """Return a call that counts in shards that are read together."""
        view = self.view
        words = [word for shard, score, stored in named for word in (shard + 1, score, stored)]
        arguments = ("", *view.order, int(is_sized), *words)
        return Call(COUNT_BEFORE, self.shards.rankings(view.ranking or ""), arguments, each * len(named))

    def _count_in(self, named: Sequence[_Named], each: int, keys: Keys) -> Steps[Any]:
        """Count in one shard."""
        view, own = self.view, self.shards.keys.index(keys)
        words = [word for shard, score, stored in named for word in (int(shard == own), score, stored)]
        return view.read(keys, COUNT_BEFORE, (keys.build, *view.order, 1, *words), each * len(named))

    def look_up(self, members: Sequence[str], *, is_sized: bool = True) -> Steps[Locations]:
        """The locations of members in shards that are read together. One round trip for 25 of them."""
        of = self.shards.of
        named: list[_Named] = [(of(member), "", member) for member in members]
        size, _, replies = yield from self._count(named, is_sized=is_sized)
        found = [reply and Location(reply[0], reply[0], reply[1], float(reply[2])) for reply in replies]
        if self.view.method != "ordinal":
            ordered = sorted({(one.score, one.stored) for one in found if one}, reverse=self.view.reverse)
            order = {sort_key: at for at, sort_key in enumerate(ordered)}
            found = [one and one._replace(position=order[one.score, one.stored]) for one in found]
        return Locations(size, found)

    def locate(self, question: Locate) -> Steps[Locations]:
        """Locations of members. Two round trips for 25 of them; one if their sort keys are known, or if one script
        reads all shards. With methods other than ordinal, positions only order these members."""
        view, ordinal = self.view, self.view.method == "ordinal"
        is_known = question.sort_keys and not question.checked
        if self.shards.are_together and not is_known and not view.ranks.is_distinct:
            return (yield from self.look_up(question.members))
        sort_keys: Sequence[SortKey | None] = [*map(SortKey._make, question.sort_keys)]
        # Once more if a member has moved between the two round trips, and if sort keys that were given are old.
        attempts = 1 if sort_keys and not question.checked else 3 if sort_keys else 2
        while True:
            if question.members and not sort_keys:
                found = yield from self.find_sort_keys(question.members)
                sort_keys = [*map(found.get, question.members)]
            counting = list(dict.fromkeys(filter(None, sort_keys)))
            counted = yield from self.count_before(counting)
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

    def position_by_command(self, question: PositionByCommand) -> Steps[int | None]:
        if self.shards.are_together:
            _, (found,) = yield from self.look_up([question.member], is_sized=False)
        else:
            sort_keys = [question.sort_key] if question.sort_key else []
            _, (found,) = yield from self.locate(Locate([question.member], sort_keys, checked=True))
        return found and found.position

    def placements(self, question: Placements) -> Steps[list[Placement]]:
        """The placements of a member. Two round trips, or more if many shards are on one server; further ones for ranks
        that count distinct values."""
        methods = [*dict.fromkeys((self.view.method, "competition"))]
        for is_last in (False, True):
            mine = yield from question.steps(self.plain, self.shards.own(question.member))
            several = []
            for one in mine:
                sort_key = SortKey(one.location.score, one.location.stored)
                views = [replace(self.view, ranking=one.ranking, method=method) for method in methods]
                several += [ShardedView(view, self.shards).count_before([sort_key]) for view in views]
            counted = yield from together(several)
            if is_last or all(one.here for one in counted):  # else it has moved between the two
                break
        ranks, better = counted[:: len(methods)], counted[len(methods) - 1 :: len(methods)]
        return [
            Placement(one.ranking, rank.size, one.location._replace(before=rank.before[0]), equal.before[0])
            for one, rank, equal in zip(mine, ranks, better, strict=True)
        ]

    # Runs of members

    def read_around(self, sort_key: SortKey, spans: Spans, want: int) -> Steps[tuple[Around, list[SortKey]]]:
        """Read members around a sort key. ``want``: the number first asked of each shard on either side."""
        while True:
            around = yield from self._around(sort_key, want)
            back, ahead = spans(around.size, around.position)
            found = around.take(back, ahead)
            if found is not None:
                return around, found
            most = max(back, ahead)
            want = min(most, max(4 * want, self.share(most)))

    def _around(self, sort_key: SortKey, want: int) -> Steps[Around]:
        reverse = self.view.reverse
        pages = yield from self.shards.each(lambda keys: self._page_around(sort_key, want, keys))
        positions, backs, aheads = [], [], []
        for page in pages:
            members = sort_keys_of(page)
            at = sum(one > sort_key if reverse else one < sort_key for one in members)
            positions.append(page.first + at)
            backs.append((members[:at][::-1], page.first == 0))
            aheads.append((members[at:], len(members) >= page.following))
        return Around(sum(page.size for page in pages), positions, backs, aheads, reverse)

    def _page_around(self, sort_key: SortKey, want: int, keys: Keys) -> Steps[Page]:
        """Return ``want`` members of one shard on either side of a sort key."""
        view, near = self.plain, min(want, _AT_ONCE)
        start = ("sort key", repr(sort_key.score), sort_key.stored, near)
        arguments = (keys.build, *view.order, near, 2 * near, *start)
        page: Page = parse_page((yield from view.read(keys, scripts.READ_PAGE, arguments, 4 * near)))  # type: ignore[assignment]
        begin, end = page.first, page.first + len(page.members)
        first, last = max(0, begin - want + near), min(page.size, end + want - near)
        spans = [(at, count) for at, count in ((first, begin - first), (end, last - end)) if count > 0]
        if want == near or not spans:
            return page
        read = [*page.members]
        for span in spans:
            read = (yield from PageAt(*span).steps(view, keys)).members + read
        found = {view.layout.split(stored)[1]: (stored, score) for stored, score in read}
        members = sorted(found.values(), key=lambda one: (one[1], one[0]), reverse=view.reverse)
        # Members that move meanwhile may be missed, or read twice: those up to the end are whole all the same.
        following = len(members) if last == page.size else page.size - first
        return page._replace(first=first, members=members, following=following)

    def read_at(self, first: int, limit: int) -> Steps[tuple[int, list[SortKey]]]:
        """Read the size of the ranking, and the members from a position on, however deep.

        Each shard returns the member at the page's share of its positions; the median of these is a pivot near the
        page. The number of members before the pivot gives the distance, and the next pivot is nearer by a square root.
        """

        def spans(size: int, position: int) -> tuple[int, int]:
            end = min(size, first + limit)
            return max(0, position - first), max(0, end - position)

        while True:
            pages = yield from self.shards.each(lambda keys: PageAt(0, 0).steps(self.plain, keys))
            # From the positions ``low`` of the shards up to ``high``: ``first`` lies between their sums.
            low, high = [0] * len(pages), [page.size for page in pages]
            if first >= sum(high):
                return sum(high), []
            while pivot := (yield from self._pivot(first, low, high)):
                around = yield from self._around(pivot, self.share(limit))
                away = first - around.position
                if not self.is_near(abs(away) - 8 * limit):
                    low, high = (around.positions, high) if away > 0 else (low, around.positions)
                    continue
                found = around.take(*spans(around.size, around.position))
                if found is None:
                    around, found = yield from self.read_around(pivot, spans, self.share(abs(away) + limit))
                skipped = max(0, first - around.position)
                return around.size, found[skipped : skipped + limit]

    def _pivot(self, first: int, low: list[int], high: list[int]) -> Steps[SortKey | None]:
        """Return the median, weighted by their ranges, of the shards' members at their share of a position; None if all
        have left."""
        start, end = sum(low), sum(high)
        ranges = [(at, a, b) for at, (a, b) in enumerate(zip(low, high, strict=True)) if a < b]
        guesses = [
            PageAt(a + (b - a) * (first - start) // (end - start), 1).steps(self.plain, self.shards.keys[at])
            for at, a, b in ranges
        ]
        pages = yield from together(guesses)
        weights = {
            sort_key: b - a
            for (_, a, b), page in zip(ranges, pages, strict=True)
            for sort_key in sort_keys_of(page)
        }
        ordered = sorted(weights, reverse=self.view.reverse)
        half = sum(weights.values()) / 2
        sums = accumulate(weights[sort_key] for sort_key in ordered)
        return next(
            (sort_key for sort_key, so_far in zip(ordered, sums, strict=True) if so_far >= half), None
        )

    # Pages

    def top_by_command(self, question: TopByCommand) -> Steps[list[tuple[bytes, float]]]:
        """The best members. One round trip."""
        return (yield from self.page_at(PageAt(0, question.limit))).members

    def page_at(self, question: PageAt) -> Steps[Page]:
        """A page by its position. One round trip near the top, 3 to 5 anywhere else."""
        first, limit = question
        if limit and not self.is_near(first + limit):
            size, members = yield from self.read_at(first, limit)
        else:
            summed, members = yield from self._top(partial(PageAt, 0), first + limit if limit else 0)
            size, members = summed.size, members[first:]
        return (yield from self._numbered(Page(size, first, max(0, size - first), first, []), members))

    def page_between(self, question: PageBetween) -> Steps[Page]:
        """A page by scores. One round trip; 4 to 6 with a large offset."""
        best, worst, limit, offset = question
        is_near = self.is_near(offset + limit)
        end = offset + limit if limit and is_near else 0
        summed, members = yield from self._top(partial(PageBetween, best, worst), end)
        first, following = summed.first + offset, max(0, summed.following - offset)
        page, members = Page(summed.size, first, following, first, []), members[offset:]
        count = min(limit, following)
        if count and not is_near:
            _, members = yield from self.read_at(first, count)
        elif not count and self.view.ranks.is_distinct and best.score:
            bounds = [(float(best.score), best.exact)]
            (better,) = yield from count_values(self.view, self.shards, bounds)
            return page._replace(before=better)
        return (yield from self._numbered(page, members))

    def page_around(self, question: PageAround) -> Steps[Page | None]:
        """A page with a member in its middle. Two round trips."""
        member, limit = question

        def spans(size: int, position: int) -> tuple[int, int]:
            first = max(0, min(position - limit // 2, size - limit))
            return position - first, min(size, first + limit) - position

        for is_last in (False, True):
            me = (yield from self.find_sort_keys([member])).get(member)
            if me is None:
                return None
            around, members = yield from self.read_around(me, spans, self.share(limit))
            if is_last or not limit or me in members:  # else it has moved between the two
                break
        first = around.position - spans(around.size, around.position)[0]
        page = Page(around.size, first, around.size - first, first, [])
        return (yield from self._numbered(page, members))

    def page_beside(self, question: PageBeside) -> Steps[Page]:
        """A page before or after a sort key. One round trip for 500 members; one more if ranks aren't ordinal."""
        page = yield from question.in_pieces(partial(self._beside, question.is_after), _AT_ONCE - 1)
        return (yield from self._numbered(page, [SortKey(score, stored) for stored, score in page.members]))

    def _beside(self, is_after: bool, score: float, stored: bytes, count: int) -> Steps[Page]:
        """Read ``count`` members before a sort key, or from there on."""

        def spans(size: int, position: int) -> tuple[int, int]:
            return (0, min(count, size - position)) if is_after else (min(count, position), 0)

        around, members = yield from self.read_around(SortKey(score, stored), spans, self.share(count))
        first = around.position - spans(around.size, around.position)[0]
        found = [(one.stored, one.score) for one in members]
        return Page(around.size, first, around.size - first, first, found)

    def page_above(self, question: PageAbove) -> Steps[Page | None]:
        """The last member that ranks better than a member, then that one. Two round trips; three if ranks aren't
        ordinal."""

        def spans(size: int, position: int) -> tuple[int, int]:
            return min(1, position), min(1, size - position)

        for is_last in (False, True):
            me = (yield from self.find_sort_keys([question.member])).get(question.member)
            if me is None:
                return None
            around, members = yield from self.read_around(self._first_equal(me), spans, 1)
            found = [*members[: min(1, around.position)], me]
            # The first of its equals comes there, unless it has moved between the two.
            if is_last or (members and self._first_equal(members[-1]) == self._first_equal(me)):
                break
        first = around.position + 1 - len(found)
        return (yield from self._numbered(Page(around.size, first, around.size - first, first, []), found))

    def _first_equal(self, member: SortKey) -> SortKey:
        """Return a sort key at which the members that rank as ``member`` does begin."""
        if self.view.method == "ordinal":
            return member
        tie = self.view.layout.split(member.stored)[0]
        return SortKey(member.score, tie + LAST if self.view.reverse else tie)

    def _top(
        self, ask: Callable[[int], PageAt | PageBetween], count: int
    ) -> Steps[tuple[Page, list[SortKey]]]:
        """Return the first ``count`` members of the pages of all shards, and the sums of the pages' numbers."""
        want = self.share(count)
        while True:
            question = ask(want)
            pages = yield from self.shards.each(lambda keys, top=question: top.steps(self.plain, keys))
            runs = [(sort_keys_of(page), len(page.members) >= page.following) for page in pages]
            found = merged(runs, count, self.view.reverse)
            if found is not None:
                size, first, following, before = map(sum, zip(*(page[:4] for page in pages), strict=True))
                return Page(size, first, following, before, []), found
            want = min(count, 4 * want)

    def _numbered(self, page: Page, members: list[SortKey]) -> Steps[Page]:
        """Return a page with its members. Counting what ranks before the first takes a round trip, but for ordinals."""
        page = page._replace(members=[(stored, score) for score, stored in members])
        if self.view.method == "ordinal" or not members:
            return page
        counted = yield from self.count_before(members[:1])
        return page._replace(before=counted.before[0])

    # Draws

    def draw(self, question: Draw) -> Steps[Sample | None]:
        """Draw random distinct members near a member.

        Two round trips: the member's own shard returns its sort key, then all shards deal. One if the caller knows the
        sort key, and that is still the member's, or if one script deals from all shards. One more for a band of ranks;
        seldom more for a band of scores.
        """
        drawing = drawing_over_shards(self.view.drawing)
        at, by_rank = question.at and SortKey(*question.at[:2]), question.measure == "ranks"
        if self.shards.are_together and not by_rank:
            return (yield from DrawingTogether(question, self.view, self.shards, at).run())
        known, member = at or (question.sort_key and SortKey(*question.sort_key)), question.member or ""
        for is_last in (question.at is not None, True):
            me = known
            if me is None:
                everybody = ShardedView(self.view.of(""), self.shards)
                me = (yield from everybody.find_sort_keys([member])).get(member)
                if me is None:
                    return None
            ordinal = ShardedView(self.plain, self.shards)
            ends = partial(ordinal.ends, question, me) if by_rank else None
            try:
                begun = drawing(question, self.view, self.shards, me, check=not is_last, ends=ends)
                return (yield from begun.run())
            except Moved:
                known = None
        raise AssertionError("unreachable: the last attempt checks nothing")

    def ends(self, question: Draw, me: SortKey, band: int) -> Steps[Ends]:
        """Find the ends of a band that is given in positions below and above the member."""
        below, above = map(int, question.bands[band])
        back, ahead = (above, below) if self.view.reverse else (below, above)

        def between(found: list[SortKey]) -> Ends:
            first, last = (found[0], found[-1]) if found else (me, me)
            low, high = (last, first) if self.view.reverse else (first, last)
            # No bytes mean a score: an empty key comes first among those with its score.
            start = repr(low.score) if low.stored else f"({low.score!r}"
            texts = start.encode(), low.stored, repr(high.score).encode(), high.stored + NUL
            return "between", b"".join(len(text).to_bytes(4, "little") + text for text in texts)

        def spans(size: int, position: int) -> tuple[int, int]:
            return min(back, position), min(ahead + 1, size - position)

        most = max(back, ahead) + 1
        if self.is_near(most):
            around, found = yield from self.read_around(me, spans, self.share(most))
            last = min(back, around.position) + ahead + (me in found)
            return between(found[:last])
        counted = yield from self.count_before([me])
        (position,) = counted.before
        first, last = max(0, position - back), min(counted.size, position + ahead + counted.here) - 1
        if first > last:
            return between([])
        both = yield from together([self.read_at(at, 1) for at in (first, last)])
        return between([sort_key for _, found in both for sort_key in found])


def over_shards(question: Question[Answer], view: View, shards: Shards) -> Steps[Answer]:
    """Return the steps in which shards are asked. ``ScoreByCommand`` is not among these: one shard can answer it."""
    return _ANSWERS[type(question)](ShardedView(view, shards), question)


def _each(merge: Callable[[list[Any]], Any]) -> Callable[[ShardedView, Any], Steps[Any]]:
    """Return a function that asks every shard, and merges the answers. Counts are added up: each member belongs to one
    shard."""

    def ask(sharded: ShardedView, question: Any) -> Steps[Any]:
        return merge((yield from sharded.shards.each(lambda keys: question.steps(sharded.view, keys))))

    return ask


_ANSWERS: Final[dict[type, Callable[[ShardedView, Any], Steps[Any]]]] = {
    PositionByCommand: ShardedView.position_by_command,
    TopByCommand: ShardedView.top_by_command,
    CountFacet: _each(lambda counts: sum(map(Counter, counts), Counter())),
    Draw: ShardedView.draw,
    Locate: ShardedView.locate,
    PageAbove: ShardedView.page_above,
    PageAround: ShardedView.page_around,
    PageAt: ShardedView.page_at,
    PageBeside: ShardedView.page_beside,
    PageBetween: ShardedView.page_between,
    Placements: ShardedView.placements,
    Several: lambda sharded, several: several.joined(
        [over_shards(one, sharded.view, sharded.shards) for one in several.questions]
    ),
    Size: _each(sum),
}
