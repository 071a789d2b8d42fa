"""SQL fallback: the same answers from the database, slower and within a time limit."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Final, TypeVar

from django.db import OperationalError, models
from django.db.models import Count
from django.utils import timezone

from ..codec.facets import Facet
from ..codec.filters import GROUP, Condition
from ..conf import settings_of
from ..declaration import Index
from ..exceptions import IndexUnavailable
from ..queries.counts import CountFacet, Size
from ..queries.draws import Draw
from ..queries.pages import Page, PageAbove, PageAround, PageAt, PageBeside, PageBetween, TopByCommand
from ..queries.positions import (
    Locate,
    Location,
    Locations,
    Placement,
    Placements,
    PositionByCommand,
    ScoreByCommand,
)
from ..queries.steps import Question, Several
from ..queries.view import View
from ..recent import Recent
from ..transactions import reading
from .conf import SQLSettings
from .rows import Row, Rows
from .sampling import sample

__all__ = ["answer_by_sql"]

logger = logging.getLogger("django_zrank")

Answer = TypeVar("Answer")

_FEW: Final = 3
"""The most members that are located by one scan that counts the rows before each; for more, sorting is cheaper."""

_LOGGED_EVERY: Final = 60.0
_logged = Recent[bool]()
"""True, by the name of an index, if it was just logged that its answers lack what is pending."""


def answer_by_sql(
    index: Index, conditions: Iterable[Condition], question: Question[Answer], view: View
) -> Answer:
    """Return the answer to a question about the ranked rows that meet the conditions.

    A seed draws the same members each time, but others than from Redis. The cost grows with the rows: the database
    counts them by a scan, and sorts those that it numbers. An answer is computed from one snapshot of the database;
    in a caller's transaction, from what its isolation level shows.

    Raises :exc:`~django_zrank.IndexUnavailable` if it takes longer than ``ZRANK["DATABASE_TIMEOUT"]``, the database
    can't be reached, or only Redis has the answer.
    """
    if index.is_ahead and not _logged.get(index.name):
        _logged.keep(index.name, True, _LOGGED_EVERY)
        logger.warning(
            "Index %r: answers by SQL don't include the changes that are pending in Redis", index.name
        )
    return _answer(Rows(index, conditions), question, view)  # type: ignore[no-any-return]


def _answer(rows: Rows, question: Any, view: View) -> Any:
    if isinstance(question, Several):
        return [_answer(rows, one, view) for one in question.questions]
    name = rows.index.name
    if any(GROUP in condition.values for condition in rows.conditions):
        raise IndexUnavailable(f"Index {name!r}: groups exist only in Redis, which can't be trusted now")
    if isinstance(question, Draw) and question.remember is not None:
        raise IndexUnavailable(
            f"Index {name!r}: the members shown before are only in Redis, which can't be trusted now"
        )
    # As in a push; but a caller's own condition means the time zone of the caller.
    zone = timezone.get_current_timezone() if getattr(question, "where", None) else None
    try:
        with timezone.override(zone), reading(rows.connection, settings_of(SQLSettings).database_timeout):
            return _ANSWERS[type(question)](rows, view, question)
    except OperationalError as error:
        raise IndexUnavailable(f"Index {name!r}: the database failed, too: {error}") from error


def _position_by_command(rows: Rows, view: View, question: PositionByCommand) -> int | None:
    me = rows.find([question.member]).get(question.member)
    return None if me is None else rows.passing.filter(rows.apart(me, higher=view.reverse)).count()


def _score_by_command(rows: Rows, view: View, question: ScoreByCommand) -> float | None:
    me = rows.find([question.member]).get(question.member)
    return None if me is None else me.score


def _locate(rows: Rows, view: View, question: Locate) -> Locations:
    """Locations of members. Up to three take one scan, and one more for each if ranks count distinct
    values; more take a sort."""
    found = rows.find(question.members)
    if len(found) > _FEW:
        size, numbers = rows.passing.count(), rows.number(view, question.members)
    else:
        size, numbers = _count_better(rows, view, list(found.values()))
    ours = (found.get(member) for member in question.members)
    return Locations(size, [row and Location(*numbers[row.member], row.stored, row.score) for row in ours])


def _count_better(rows: Rows, view: View, ours: Sequence[Row]) -> tuple[int, dict[bytes, tuple[int, int]]]:
    """Count all rows; for each of ``ours``, the rows before it, and its rank less 1."""
    ahead = [rows.apart(row, higher=view.reverse) for row in ours]
    better = [rows.apart(row, higher=view.reverse, by_text=False) for row in ours]
    counts: dict[str, Any] = {f"position_{at}": Count("pk", filter=where) for at, where in enumerate(ahead)}
    if view.method == "competition":
        counts |= {f"before_{at}": Count("pk", filter=where) for at, where in enumerate(better)}
    found = rows.passing.aggregate(size=Count("pk"), **counts)
    numbers: dict[bytes, tuple[int, int]] = {}
    for at, row in enumerate(ours):
        before = found.get(f"before_{at}", found[f"position_{at}"])
        if view.ranks.is_distinct:
            before = rows.count_before(view, better[at])
        numbers[row.member] = found[f"position_{at}"], before
    return found["size"], numbers


def _placements(rows: Rows, view: View, question: Placements) -> list[Placement]:
    """The placements of a member, by one scan for each, and one more if ranks count distinct values."""
    me = rows.find([question.member]).get(question.member)
    if me is None:
        return []
    conditions = {view.ranking or "": rows.conditions}
    for facet in rows.index.faceting.all:
        for name in sorted(_rankings_of(rows, me, facet)) if facet.name in question.facets else ():
            values = zip(facet.paths, facet.decode(name), strict=True)
            conditions.setdefault(name, tuple(Condition({path: (value,)}, False) for path, value in values))
    found: list[Placement] = []
    for name, own in conditions.items():
        among = Rows(rows.index, own)
        size, numbers = _count_better(among, view.by("competition"), [me])
        position, better = numbers[me.member]
        before = position if view.method == "ordinal" else better
        if view.ranks.is_distinct:
            before = among.count_before(view, among.apart(me, higher=view.reverse, by_text=False))
        found.append(Placement(name, size, Location(position, before, me.stored, me.score), better))
    return found


def _rankings_of(rows: Rows, me: Row, facet: Facet) -> set[str]:
    """The names of the rankings of a member's values of a facet."""
    everybody = models.QuerySet[Any](rows.index.model, using=rows.index.get_using()).order_by()
    mine = rows.index.annotate(everybody).filter(pk=me.pk)
    # Every combination of the values at each path counts, even if two paths lead through one relation.
    values = [
        {*mine.values_list(facet.kind(path).comparable(path, rows.connection), flat=True)}
        for path in facet.paths
    ]
    return {facet.ranking(chosen) for chosen in product(*values)}


def _page_at(rows: Rows, view: View, question: PageAt) -> Page:
    size = rows.passing.count()
    return _page(rows, view, size, question.first, size, question.limit)


def _top_by_command(rows: Rows, view: View, question: TopByCommand) -> list[tuple[bytes, float]]:
    return _page_at(rows, view, PageAt(0, question.limit)).members


def _page_around(rows: Rows, view: View, question: PageAround) -> Page | None:
    me = rows.find([question.member]).get(question.member)
    if me is None:
        return None
    size, numbers = _count_better(rows, view.by("ordinal"), [me])
    first = max(0, min(numbers[me.member][0] - question.limit // 2, size - question.limit))
    return _page(rows, view, size, first, size, question.limit)


def _page_above(rows: Rows, view: View, question: PageAbove) -> Page | None:
    me = rows.find([question.member]).get(question.member)
    if me is None:
        return None
    # Positions of the first of its equals.
    size, numbers = _count_better(rows, view if view.method == "ordinal" else view.by("competition"), [me])
    better = numbers[me.member][1]
    page = _page(rows, view, size, max(0, better - 1), size, min(1, better))
    page.members.append((me.stored, me.score))
    return page


def _page_beside(rows: Rows, view: View, question: PageBeside) -> Page:
    is_after = question.is_after
    start, size = rows.at(question.score, question.stored), rows.passing.count()
    beside = rows.passing.filter(rows.apart(start, higher=view.reverse != is_after))
    nearest = beside.order_by(*rows.best_first(view.reverse == is_after)).values_list("pk", *rows.columns)
    found = [rows.row(pk, values) for pk, *values in nearest[: question.limit + is_after]]
    if not found:
        first = size if is_after else 0
        return Page(size, first, size - first, first, [])
    best = found[0] if is_after else found[-1]
    (position, before) = _count_better(rows, view, [rows.at(best.score, best.stored)])[1][best.member]
    members = [(row.stored, row.score) for row in (found if is_after else found[question.limit - 1 :: -1])]
    return Page(size, position, size - position, before, members)


def _page_between(rows: Rows, view: View, question: PageBetween) -> Page:
    better = rows.beyond(question.best, "gt" if view.reverse else "lt")
    worse = rows.beyond(question.worst, "lt" if view.reverse else "gt")
    counts = rows.passing.aggregate(
        size=Count("pk"), better=Count("pk", filter=better), worse=Count("pk", filter=worse)
    )
    first, last = counts["better"], counts["size"] - counts["worse"]
    page = _page(rows, view, counts["size"], first + question.offset, last, question.limit)
    if not page.members and view.ranks.is_distinct:
        page = page._replace(before=rows.count_before(view, better))
    return page


def _page(rows: Rows, view: View, size: int, first: int, last: int, count: int) -> Page:
    """Up to ``count`` members from the position ``first`` on, before the position ``last``."""
    following = max(0, last - first)
    ours = rows.passing.order_by(*rows.best_first(view.reverse)).values_list("pk", *rows.columns)
    count = min(count, following)
    found = [rows.row(pk, values) for pk, *values in ours[first : first + count]] if count else []
    before = first
    if found and view.method != "ordinal":
        before = rows.count_before(view, rows.apart(found[0], higher=view.reverse, by_text=False))
    return Page(size, first, following, before, [(row.stored, row.score) for row in found])


def _size(rows: Rows, view: View, question: Size) -> int:
    return rows.passing.count()


def _count_facet(rows: Rows, view: View, question: CountFacet) -> dict[bytes, int]:
    """Count the members of each value of a facet, by the names of the values' rankings."""
    facet = question.facet
    everybody = models.QuerySet[Any](rows.index.model, using=rows.index.get_using()).order_by()
    ours = rows.index.annotate(everybody).filter(pk__in=rows.passing.values("pk"))
    columns: dict[str, Any] = {
        f"zrank_facet_{at}": facet.kind(path).comparable(path, rows.connection)
        for at, path in enumerate(facet.paths)
    }
    counts: Counter[bytes] = Counter()
    if not (facet.many and len(facet.paths) > 1):
        grouped = ours.values(**columns).annotate(zrank_count=Count("pk", distinct=facet.many))
        for *values, count in grouped.values_list(*columns, "zrank_count"):
            counts[facet.ranking(values).encode()] += count
        return counts
    # Every combination of the values at each path counts, even if two paths lead through one relation.
    members: dict[Any, list[set[Any]]] = {}
    for at, column in enumerate(columns):
        for pk, value in ours.values(**{column: columns[column]}).values_list("pk", column):
            members.setdefault(pk, [set() for _ in columns])[at].add(value)
    for several in members.values():
        counts.update(facet.ranking(values).encode() for values in product(*several))
    return counts


_ANSWERS: Final[dict[type, Callable[[Rows, View, Any], Any]]] = {
    PositionByCommand: _position_by_command,
    ScoreByCommand: _score_by_command,
    TopByCommand: _top_by_command,
    CountFacet: _count_facet,
    Draw: sample,
    Locate: _locate,
    PageAbove: _page_above,
    PageAround: _page_around,
    PageAt: _page_at,
    PageBeside: _page_beside,
    PageBetween: _page_between,
    Placements: _placements,
    Size: _size,
}
