"""Counts over shards: each member belongs to one shard, so counts are added up."""

from __future__ import annotations

from collections import Counter

from ..counts import CountFacet, Size
from ..histogram import CountScores
from ..request import Request
from ..view import View
from .shards import Shards

__all__ = ["count_facet", "count_scores", "size"]


def size(question: Size, view: View, shards: Shards) -> Request[int]:
    return shards.each(lambda keys: question.request(view, keys)).then(sum)


def count_scores(question: CountScores, view: View, shards: Shards) -> Request[list[int]]:
    counts = shards.each(lambda keys: question.request(view, keys))
    return counts.then(lambda found: list(map(sum, zip(*found, strict=True))))


def count_facet(question: CountFacet, view: View, shards: Shards) -> Request[dict[bytes, int]]:
    counts = shards.each(lambda keys: question.request(view, keys))
    return counts.then(lambda found: sum(map(Counter, found), Counter()))
