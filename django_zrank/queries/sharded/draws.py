"""Random members near one member, over shards."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...codec.units import NUL
from ..draws import Draw, Drawing, Ends, Moved, Sample
from ..query import Query, together
from ..shards import Shards
from ..view import ALL, View
from .positions import SortKey, count_before, find_sort_keys
from .runs import NEAR, read_around, read_at, share

__all__ = ["draw"]


def draw(question: Draw, view: View, shards: Shards) -> Query[Sample | None]:
    """Draw random distinct members near a member.

    Two round trips: the member's own shard returns its sort key, then all shards deal. One if the caller knows the sort
    key, and that is still the member's. One more for a band of ranks; seldom more for a band of scores.
    """
    known = question.sort_key and SortKey(*question.sort_key)
    if question.at:
        known = SortKey(*question.at[:2])
    for is_last in (question.at is not None, True):
        me = known
        if me is None:
            member = question.member or ""
            me = (yield from find_sort_keys([member], replace(view, scope=ALL), shards)).get(member)
            if me is None:
                return None
        ends = partial(_ends, question, view, shards, me) if question.measure == "ranks" else None
        try:
            drawing = Drawing(question, view, shards, me, check=not is_last, ends=ends)
            return (yield from drawing.run())
        except Moved:
            known = None
    raise AssertionError("unreachable: the last attempt checks nothing")


def _ends(question: Draw, view: View, shards: Shards, me: SortKey, band: int) -> Query[Ends]:
    """Find the ends of a band that is given in positions below and above the member."""
    below, above = map(int, question.bands[band])
    view = view.by("ordinal")
    back, ahead = (above, below) if view.reverse else (below, above)

    def ends(found: list[SortKey]) -> Ends:
        first, last = (found[0], found[-1]) if found else (me, me)
        low, high = (last, first) if view.reverse else (first, last)
        # No bytes mean a score: an empty key comes first among those with its score.
        start = (repr(low.score), low.stored) if low.stored else (f"({low.score!r}", b"")
        return "between", *start, repr(high.score), high.stored + NUL

    def spans(size: int, position: int) -> tuple[int, int]:
        return min(back, position), min(ahead + 1, size - position)

    most = max(back, ahead) + 1
    if most <= NEAR * len(shards.keys):
        around, found = yield from read_around(me, spans, share(most, shards), view, shards)
        last = min(back, around.position) + ahead + (me in found)
        return ends(found[:last])
    counted = yield from count_before([me], view, shards)
    (position,) = counted.before
    first, last = max(0, position - back), min(counted.size, position + ahead + counted.here) - 1
    if first > last:
        return ends([])
    reads = [read_at(at, 1, view, shards) for at in (first, last)]
    both = yield from together(reads, spread=True)
    return ends([sort_key for _, found in both for sort_key in found])
