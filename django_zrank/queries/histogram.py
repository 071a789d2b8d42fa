"""Counts of members by their scores."""

from __future__ import annotations

from typing import NamedTuple

from ..redis.keys import Keys
from .query import Query
from .request import Call, Request, Swapped
from .view import View

__all__ = ["CountScores"]


class CountScores(NamedTuple):
    """The number of members in each range, with its ends as in ZCOUNT: ``("0", "(10")``. One round trip. Filters that
    no facet covers are ignored."""

    ranges: tuple[tuple[str, str], ...]

    def query(self, view: View, keys: Keys) -> Query[list[int]]:
        key = keys.ranking(view.ranking or "")
        live = Call("HGET", (keys.meta,), ("generation",))
        *counts, generation = yield Request(
            (*(Call("ZCOUNT", (key,), ends, 2) for ends in self.ranges), live)
        )
        if (generation or b"").decode() != keys.generation:
            raise Swapped
        return counts
