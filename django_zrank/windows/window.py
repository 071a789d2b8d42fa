"""The windows of an index: the columns that it compares with the current time."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import models
from django.db.models.expressions import Ref
from django.utils import timezone

from ..capture.watched_tables import every_row, expressions, path_to
from ..declaration import Index
from .lookup import MOMENT, Within

__all__ = ["Window", "columns", "windows_of"]

_MICROSECOND: Final = timedelta(microseconds=1)


class Window(NamedTuple):
    """Rows that are inside for ``period`` after the time in their column. Times are in microseconds of the database's
    clock."""

    model: type[models.Model]
    """That of the members."""

    path: str
    """The lookup path of the column, from a member."""

    period: timedelta

    is_day: bool
    """True if the column holds dates."""

    def limit(self, now: int) -> datetime | date:
        """Return the latest value that is outside."""
        at = MOMENT.value(now)
        if not self.is_day:
            return at - self.period
        local = timezone.make_naive(at, timezone.get_default_timezone()) if settings.USE_TZ else at
        return (local - self.period).date()

    def end(self, value: Any) -> int:
        """Return the time at which a value leaves. Raises ``TypeError`` for one that Python has no type for."""
        if not self.is_day:
            return MOMENT.whole(value) + self.period // _MICROSECOND
        local = datetime.combine(value, time.min) + self.period
        return MOMENT.whole(
            timezone.make_aware(local, timezone.get_default_timezone()) if settings.USE_TZ else local
        )

    def leaving(self, using: str, since: int | None, until: int) -> models.QuerySet[Any]:
        """Return the rows of members with a value that leaves after ``since``, and up to ``until``, perhaps several of
        each."""
        bounds = {f"{self.path}__lte": self.limit(until)}
        if since is not None:
            bounds[f"{self.path}__gt"] = self.limit(since)
        return every_row(self.model, using).filter(**bounds).order_by()

    def members(self, using: str, since: int | None, until: int, most: int | None = None) -> list[Any]:
        """Return the primary keys of the first ``most`` of these rows."""
        # All at once: on SQLite, marks can't be left while rows are being read, if others write.
        return list(self.leaving(using, since, until).values_list("pk", flat=True)[:most])


def columns(index: Index) -> tuple[list[tuple[Any, Any, Within]], list[Within]]:
    """Return the lookups ``within`` of a declaration: each with its query and the column that it compares, None if that
    can't be told; and those in subqueries that read other rows than the member's own."""
    own, others = expressions(index, Within)
    return [(query, _column(node.lhs), node) for query, node in own], others


def _column(expression: Any) -> Any:
    """Return the column that an expression has its values from; None for others."""
    while isinstance(expression, (models.Max, models.Min, Ref)):
        expression = expression.get_source_expressions()[0]
    return expression if isinstance(expression, models.expressions.Col) else None


def windows_of(index: Index) -> list[Window]:
    """Return the windows of an index."""
    found = (
        Window(query.model, path_to(query, column), node.rhs, node.is_day)
        for query, column, node in columns(index)[0]
        if column is not None
    )
    return list(dict.fromkeys(found))
