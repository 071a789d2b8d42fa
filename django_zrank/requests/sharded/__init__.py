"""Questions over the shards of an index, as requests whose calls are about several of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..counts import CountFacet, Size
from ..positions import BareScore
from ..request import Question, Request, Several
from ..view import View
from .counts import count_facet, size
from .shards import Shards

__all__ = ["Shards", "over_shards"]

Answer = TypeVar("Answer")


def over_shards(question: Question[Answer], view: View, shards: Shards) -> Request[Answer]:
    """The request that asks shards a question."""
    return _ANSWERS[type(question)](question, view, shards)


def _several(question: Several[Any], view: View, shards: Shards) -> Request[list[Any]]:
    return question.joined([over_shards(one, view, shards) for one in question.questions])


def _own(question: BareScore, view: View, shards: Shards) -> Request[float | None]:
    return question.request(view, shards.own(question.member))


_ANSWERS: Final[dict[type, Callable[[Any, View, Shards], Request[Any]]]] = {
    BareScore: _own,
    CountFacet: count_facet,
    Several: _several,
    Size: size,
}
