"""Pages over shards."""

from __future__ import annotations

from collections.abc import Callable

from ..pages import Page, PageAround, PageAt, PageBetween
from ..query import Query
from ..shards import Shards
from ..view import View
from .positions import SortKey, count_before, count_values, find_sort_keys
from .runs import NEAR, merged, read_around, read_at, share, sort_keys_of

__all__ = ["page_around", "page_at", "page_between"]

Top = PageAt | PageBetween


def page_at(question: PageAt, view: View, shards: Shards) -> Query[Page]:
    """A page by its position. One round trip near the top, 3 to 5 anywhere else."""
    first, limit = question
    if limit and first + limit > NEAR * len(shards.keys):
        size, members = yield from read_at(first, limit, view, shards)
    else:
        end = first + limit if limit else 0
        summed, members = yield from _top(lambda want: PageAt(0, want), end, view, shards)
        size, members = summed.size, members[first:]
    page = Page(size, first, max(0, size - first), first, [])
    return (yield from _numbered(page, members, view, shards))


def page_between(question: PageBetween, view: View, shards: Shards) -> Query[Page]:
    """A page by scores. One round trip; 4 to 6 with a large offset."""
    best, worst, limit, offset = question
    is_near = offset + limit <= NEAR * len(shards.keys)
    end = offset + limit if limit and is_near else 0
    summed, members = yield from _top(lambda want: PageBetween(best, worst, want), end, view, shards)
    first, following = summed.first + offset, max(0, summed.following - offset)
    page, members = Page(summed.size, first, following, first, []), members[offset:]
    count = min(limit, following)
    if count and not is_near:
        _, members = yield from read_at(first, count, view, shards)
    elif not count and view.method == "dense" and best.score:
        (better,) = yield from count_values([(float(best.score), best.exact)], view, shards)
        return page._replace(before=better)
    return (yield from _numbered(page, members, view, shards))


def page_around(question: PageAround, view: View, shards: Shards) -> Query[Page | None]:
    """A page with a member in its middle. Two round trips."""
    member, limit = question

    def spans(size: int, position: int) -> tuple[int, int]:
        first = max(0, min(position - limit // 2, size - limit))
        return position - first, min(size, first + limit) - position

    for is_last in (False, True):
        me = (yield from find_sort_keys([member], view, shards)).get(member)
        if me is None:
            return None
        around, members = yield from read_around(me, spans, share(limit, shards), view, shards)
        if is_last or not limit or me in members:  # else it has moved between the two
            break
    first = around.position - spans(around.size, around.position)[0]
    page = Page(around.size, first, around.size - first, first, [])
    return (yield from _numbered(page, members, view, shards))


def _top(
    ask: Callable[[int], Top], count: int, view: View, shards: Shards
) -> Query[tuple[Page, list[SortKey]]]:
    """Return the first ``count`` members of the pages of all shards, and the sums of the pages' numbers."""
    plain, want = view.by("ordinal"), share(count, shards)
    while True:
        question = ask(want)
        pages = yield from shards.each(lambda keys, top=question: top.query(plain, keys))
        runs = [(sort_keys_of(page), len(page.members) >= page.following) for page in pages]
        found = merged(runs, count, view.reverse)
        if found is not None:
            size, first, following, before = map(sum, zip(*(page[:4] for page in pages), strict=True))
            return Page(size, first, following, before, []), found
        want = min(count, 4 * want)


def _numbered(page: Page, members: list[SortKey], view: View, shards: Shards) -> Query[Page]:
    """Return a page with its members. Counting what ranks before the first takes a round trip, but for ordinals."""
    page = page._replace(members=[(stored, score) for score, stored in members])
    if view.method == "ordinal" or not members:
        return page
    counted = yield from count_before(members[:1], view, shards)
    return page._replace(before=counted.before[0])
