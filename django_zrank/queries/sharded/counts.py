"""Counts over shards: each member belongs to one shard, so counts are added up."""

from __future__ import annotations

from collections import Counter

from ..counts import CountFacet, Size
from ..histogram import CountScores
from ..query import Query
from ..shards import Shards
from ..view import View

__all__ = ["count_facet", "count_scores", "size"]


def size(question: Size, view: View, shards: Shards) -> Query[int]:
    return sum((yield from shards.each(lambda keys: question.query(view, keys))))


def count_scores(question: CountScores, view: View, shards: Shards) -> Query[list[int]]:
    counts = yield from shards.each(lambda keys: question.query(view, keys))
    return list(map(sum, zip(*counts, strict=True)))


def count_facet(question: CountFacet, view: View, shards: Shards) -> Query[dict[bytes, int]]:
    counts = yield from shards.each(lambda keys: question.query(view, keys))
    return sum(map(Counter, counts), Counter())
