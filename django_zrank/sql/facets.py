"""Counts of members, in all and by the values of a facet."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

from django.db import models
from django.db.models import Count, F
from django.db.models.functions import Collate

from ..codec.facets import Facet
from ..queries.counts import CountFacet, Size
from ..queries.view import View
from .rows import Rows

__all__ = ["count_facet", "size"]


def size(rows: Rows, view: View, question: Size) -> int:
    return rows.passing.count()


def count_facet(rows: Rows, view: View, question: CountFacet) -> dict[bytes, int]:
    """Count the members of each value of a facet, by the names of the values' rankings."""
    facet = question.facet
    counts: Counter[bytes] = Counter()
    for values, count in _counts(rows, facet).items():
        counts[facet.ranking(values).encode()] += count
    return counts


def _counts(rows: Rows, facet: Facet) -> Counter[tuple[Any, ...]]:
    everybody = models.QuerySet[Any](rows.index.model, using=rows.index.get_using()).order_by()
    ours = everybody.filter(pk__in=rows.passing.values("pk"))
    columns: dict[str, Any] = {}
    for at, path in enumerate(facet.paths):
        collation = rows.collation(path)
        columns[f"zrank_facet_{at}"] = Collate(F(path), collation) if collation else F(path)
    counts: Counter[tuple[Any, ...]] = Counter()
    if not (facet.many and len(facet.paths) > 1):
        grouped = ours.values(**columns).annotate(zrank_count=Count("pk", distinct=facet.many))
        for *values, count in grouped.values_list(*columns, "zrank_count"):
            counts[tuple(values)] += count
        return counts
    # Every combination of the values at each path counts, even if two paths lead through one relation.
    members: dict[Any, list[set[Any]]] = {}
    for at, column in enumerate(columns):
        found = ours.values(**{column: columns[column]}).values_list("pk", column)
        for pk, value in found:
            members.setdefault(pk, [set() for _ in columns])[at].add(value)
    for values in members.values():
        counts.update(product(*values))
    return counts
