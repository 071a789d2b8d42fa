"""Numbers of members, over shards: each member is counted by its own, so they are sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..counts import CountFacet, Size
from ..pages import Page, PageBetween
from ..request import Request
from ..view import View
from .shards import Shards

__all__ = ["count_facet", "size", "sum_pages"]


def size(question: Size, view: View, shards: Shards) -> Request[int]:
    """The number of members."""
    return shards.each(lambda keys: question.request(view, keys)).then(sum)


def count_facet(question: CountFacet, view: View, shards: Shards) -> Request[dict[bytes, int]]:
    """The number of members that have each value of a facet."""
    return shards.each(lambda keys: question.request(view, keys)).then(_added)


def sum_pages(question: PageBetween, view: View, shards: Shards) -> Request[Page]:
    """A page without members, for its numbers. Not for dense ranks: shards have values in common."""
    return shards.each(lambda keys: question.request(view, keys)).then(_summed)


def _added(counts: Sequence[dict[bytes, int]]) -> dict[bytes, int]:
    total: Counter[bytes] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _summed(pages: Sequence[Page]) -> Page:
    size, first, following, before = map(sum, zip(*(page[:4] for page in pages), strict=True))
    return Page(size, first, following, before, [])
