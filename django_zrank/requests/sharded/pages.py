"""Pages over shards."""

from __future__ import annotations

from collections.abc import Callable

from ..pages import Page, PageAround, PageAt, PageBetween
from ..request import Request
from ..view import View
from .positions import find_sort_keys
from .runs import NEAR, Around, merged, read_around, read_at, share, sort_keys_of
from .shards import Shards
from .sort_keys import SortKey, count_before, count_values

__all__ = ["page_around", "page_at", "page_between"]

Top = PageAt | PageBetween


def page_at(question: PageAt, view: View, shards: Shards) -> Request[Page]:
    """A page by its position. One round trip near the top, 3 to 5 anywhere else."""
    first, limit = question

    def page(read: tuple[int, list[SortKey]]) -> Page | Request[Page]:
        size, members = read
        return _numbered(Page(size, first, max(0, size - first), first, []), members, view, shards)

    if limit and first + limit > NEAR * len(shards.keys):
        return read_at(first, limit, view, shards).then(page)
    end = first + limit if limit else 0
    top = _top(lambda want: PageAt(0, want), end, view, shards)
    return top.then(lambda read: page((read[0].size, read[1][first:])))


def page_between(question: PageBetween, view: View, shards: Shards) -> Request[Page]:
    """A page by scores. One round trip; 4 to 6 with a large offset."""
    best, worst, limit, offset = question
    is_near = offset + limit <= NEAR * len(shards.keys)

    def page(read: tuple[Page, list[SortKey]]) -> Page | Request[Page]:
        summed, members = read
        first, following = summed.first + offset, max(0, summed.following - offset)
        found = Page(summed.size, first, following, first, [])
        count = min(limit, following)
        if count and not is_near:
            return read_at(first, count, view, shards).then(
                lambda read: _numbered(found, read[1], view, shards)
            )
        if not count and view.method == "dense" and best.score:
            values = count_values([(float(best.score), best.exact)], view, shards)
            return values.then(lambda better: found._replace(before=better[0]))
        return _numbered(found, members[offset:], view, shards)

    end = offset + limit if limit and is_near else 0
    return _top(lambda want: PageBetween(best, worst, want), end, view, shards).then(page)


def page_around(
    question: PageAround, view: View, shards: Shards, *, again: bool = True
) -> Request[Page | None]:
    """A page with a member in its middle. Two round trips.

    ``again``: begin again if that member has moved between the two.
    """
    member, limit = question

    def spans(size: int, position: int) -> tuple[int, int]:
        first = max(0, min(position - limit // 2, size - limit))
        return position - first, min(size, first + limit) - position

    def read(sort_keys: dict[str, SortKey]) -> Request[Page | None] | None:
        if member not in sort_keys:
            return None
        me = sort_keys[member]

        def page(read: tuple[Around, list[SortKey]]) -> Request[Page | None] | Page | None:
            around, members = read
            if again and limit and me not in members:
                return page_around(question, view, shards, again=False)
            first = around.position - spans(around.size, around.position)[0]
            return _numbered(Page(around.size, first, around.size - first, first, []), members, view, shards)  # type: ignore[return-value]

        return read_around(me, spans, share(limit, shards), view, shards).then(page)

    return find_sort_keys([member], view, shards).then(read)


def _top(
    ask: Callable[[int], Top], count: int, view: View, shards: Shards, want: int | None = None
) -> Request[tuple[Page, list[SortKey]]]:
    """Return the first ``count`` members of the pages of all shards, and the sums of the pages' numbers."""
    want = share(count, shards) if want is None else want

    def join(pages: list[Page]) -> tuple[Page, list[SortKey]] | Request[tuple[Page, list[SortKey]]]:
        runs = [(sort_keys_of(page), len(page.members) >= page.following) for page in pages]
        found = merged(runs, count, view.reverse)
        if found is None:
            return _top(ask, count, view, shards, min(count, 4 * want))
        size, first, following, before = map(sum, zip(*(page[:4] for page in pages), strict=True))
        return Page(size, first, following, before, []), found

    return shards.each(lambda keys: ask(want).request(view.by("ordinal"), keys)).then(join)


def _numbered(page: Page, members: list[SortKey], view: View, shards: Shards) -> Page | Request[Page]:
    """Return a page with its members. Counting what ranks before the first takes a round trip, but for ordinals."""
    page = page._replace(members=[(stored, score) for score, stored in members])
    if view.method == "ordinal" or not members:
        return page
    return count_before(members[:1], view, shards).then(
        lambda counted: page._replace(before=counted.before[0])
    )
