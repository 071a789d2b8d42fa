"""Questions over the shards of an index, as queries to several of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..counts import CountFacet, Size
from ..draws import Draw
from ..pages import PageAround, PageAt, PageBetween
from ..positions import BarePosition, Locate
from ..query import Query, Question, Several
from ..shards import Shards
from ..view import View
from .draws import draw
from .pages import page_around, page_at, page_between
from .positions import bare_position, locate

__all__ = ["Shards", "over_shards"]

Answer = TypeVar("Answer")


def over_shards(question: Question[Answer], view: View, shards: Shards) -> Query[Answer]:
    """Return the query that asks shards a question. ``BareScore`` is not among these: one shard can answer it."""
    return _ANSWERS[type(question)](question, view, shards)


def _each(merge: Callable[[list[Any]], Any]) -> Callable[[Any, View, Shards], Query[Any]]:
    """Return a function that asks every shard, and merges the answers. Counts are added up: each member belongs to one
    shard."""

    def ask(question: Any, view: View, shards: Shards) -> Query[Any]:
        return merge((yield from shards.each(lambda keys: question.query(view, keys))))

    return ask


_ANSWERS: Final[dict[type, Callable[[Any, View, Shards], Query[Any]]]] = {
    BarePosition: bare_position,
    CountFacet: _each(lambda counts: sum(map(Counter, counts), Counter())),
    Draw: draw,
    Locate: locate,
    PageAround: page_around,
    PageAt: page_at,
    PageBetween: page_between,
    Several: lambda question, view, shards: question.joined(
        [over_shards(one, view, shards) for one in question.questions]
    ),
    Size: _each(sum),
}
