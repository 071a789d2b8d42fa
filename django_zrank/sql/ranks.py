"""Ranks, scores, pages and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

from django.db import models
from django.db.models import Count, F, Q, Window
from django.db.models.functions import Collate, DenseRank, Rank, RowNumber

from ..codec.facets import Facet
from ..queries.counts import CountFacet, Size
from ..queries.pages import Page, PageAround, PageAt, PageBetween
from ..queries.positions import BarePosition, BareScore, Locate, Location, Locations
from ..queries.view import View
from .rows import Row, Rows

__all__ = [
    "bare_position",
    "bare_score",
    "count_facet",
    "locate",
    "number",
    "page_around",
    "page_at",
    "page_between",
    "size",
]

_FEW: Final = 3
"""The most members that are located by one scan that counts the rows before each; for more, sorting is cheaper."""

_RANKS: Final = {"ordinal": RowNumber, "competition": Rank, "dense": DenseRank}


def bare_position(rows: Rows, view: View, question: BarePosition) -> int | None:
    me = rows.find([question.member]).get(question.member)
    return None if me is None else rows.passing.filter(rows.apart(me, higher=view.reverse)).count()


def bare_score(rows: Rows, view: View, question: BareScore) -> float | None:
    me = rows.find([question.member]).get(question.member)
    return None if me is None else me.score


def locate(rows: Rows, view: View, question: Locate) -> Locations:
    """Locations of members. Up to three take one scan, and one more for each if ranks are dense; more take a sort."""
    found = rows.find(question.members)
    if len(found) > _FEW:
        size, numbers = rows.passing.count(), number(rows, view, question.members)
    else:
        size, numbers = _count_better(rows, view, list(found.values()))
    ours = (found.get(member) for member in question.members)
    return Locations(size, [row and Location(*numbers[row.member], row.stored, row.score) for row in ours])


def page_at(rows: Rows, view: View, question: PageAt) -> Page:
    size = rows.passing.count()
    return _page(rows, view, size, question.first, size, question.limit)


def page_around(rows: Rows, view: View, question: PageAround) -> Page | None:
    me = rows.find([question.member]).get(question.member)
    if me is None:
        return None
    size, numbers = _count_better(rows, replace(view, method="ordinal"), [me])
    first = max(0, min(numbers[me.member][0] - question.limit // 2, size - question.limit))
    return _page(rows, view, size, first, size, question.limit)


def page_between(rows: Rows, view: View, question: PageBetween) -> Page:
    better = rows.beyond(question.best, "gt" if view.reverse else "lt")
    worse = rows.beyond(question.worst, "lt" if view.reverse else "gt")
    counts = rows.passing.aggregate(
        size=Count("pk"), better=Count("pk", filter=better), worse=Count("pk", filter=worse)
    )
    first, last = counts["better"], counts["size"] - counts["worse"]
    page = _page(rows, view, counts["size"], first + question.offset, last, question.limit)
    if not page.members and view.method == "dense":
        page = page._replace(before=_count_values(rows, better))
    return page


def _page(rows: Rows, view: View, size: int, first: int, last: int, count: int) -> Page:
    """Up to ``count`` members from the position ``first`` on, before the position ``last``."""
    following = max(0, last - first)
    ours = rows.passing.order_by(*rows.best_first(view.reverse)).values_list("pk", *rows.order.paths)
    count = min(count, following)
    found = [rows.row(pk, values) for pk, *values in ours[first : first + count]] if count else []
    before = first
    if found and view.method != "ordinal":
        better = rows.apart(found[0], higher=view.reverse, by_text=False)
        is_dense = view.method == "dense"
        before = _count_values(rows, better) if is_dense else rows.passing.filter(better).count()
    return Page(size, first, following, before, [(row.stored, row.score) for row in found])


def _count_values(rows: Rows, where: Q) -> int:
    """Count the distinct combinations of the criteria's values in the rows ``where``."""
    names = [f"zrank_{at}" for at in range(len(rows.order.criteria))]
    ours = rows.passing.filter(where).annotate(**{name: F(name) for name in names})
    distinct: int = ours.values(*names).distinct().count()
    return distinct


def _count_better(rows: Rows, view: View, ours: Sequence[Row]) -> tuple[int, dict[bytes, tuple[int, int]]]:
    """Count all rows; for each of ``ours``, the rows before it, and its rank less 1."""
    counts: dict[str, Any] = {"size": Count("pk")}
    better = [rows.apart(row, higher=view.reverse, by_text=False) for row in ours]
    for at, row in enumerate(ours):
        counts[f"position_{at}"] = Count("pk", filter=rows.apart(row, higher=view.reverse))
        if view.method == "competition":
            counts[f"before_{at}"] = Count("pk", filter=better[at])
    found = rows.passing.aggregate(**counts)
    numbers: dict[bytes, tuple[int, int]] = {}
    for at, row in enumerate(ours):
        before = found.get(f"before_{at}", found[f"position_{at}"])
        if view.method == "dense":
            before = _count_values(rows, better[at])
        numbers[row.member] = found[f"position_{at}"], before
    return found["size"], numbers


def number(rows: Rows, view: View, members: Iterable[str]) -> dict[bytes, tuple[int, int]]:
    """Sort all rows; for each of many members, count the rows before it, and its rank less 1."""
    order = rows.best_first(view.reverse)
    position: Any = Window(RowNumber(), order_by=order) - 1
    before: Any = Window(_RANKS[view.method](), order_by=order[:-1]) - 1
    numbered = rows.passing.annotate(
        zrank_at=position, zrank_before=position if view.method == "ordinal" else before
    )
    numbers: dict[bytes, tuple[int, int]] = {}
    for pks in rows.chunks(members):
        # The condition on the numbers, joined by OR, keeps databases from filtering by key before they number all rows.
        found = numbered.filter(Q(pk__in=pks) | Q(zrank_at__lt=0))
        for pk, at, before in found.values_list("pk", "zrank_at", "zrank_before"):
            numbers[rows.index.to_text(pk).encode()] = (at, before)
    return numbers


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
