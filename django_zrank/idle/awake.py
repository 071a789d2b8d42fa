"""The condition of ``idle`` on rows: the time at which a row was last seen, after which it stays ranked for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import FieldError
from django.db import models
from django.utils import timezone

from ..codec.fields import follow
from ..codec.kinds import Moment

__all__ = ["MOMENT", "Awake", "TimeAgo"]


class TimeAgo(models.Func):
    """The time ``period`` before the statement runs, by the database's clock.

    MySQL's clock has no time zone, so connections that store local times use this process's clock. SQLite, on the same
    machine, does too.
    """

    def __init__(self, period: timedelta) -> None:
        super().__init__(output_field=models.DateTimeField())
        self.period = period

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        return "%s", [connection.ops.adapt_datetimefield_value(timezone.now() - self.period)]

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        return "(STATEMENT_TIMESTAMP() - %s)", [self.period]

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        if not settings.USE_TZ or connection.timezone_name != "UTC":
            return self.as_sql(compiler, connection)
        return "(UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND)", [self.period // timedelta(microseconds=1)]


class Awake(NamedTuple):
    """The condition of an index with ``idle``: a row is awake if it was seen less than ``period`` ago."""

    path: str

    period: timedelta

    field: models.Field[Any, Any] | None
    """The column, if it belongs to the model itself and ``touch()`` can write it; None if it is on another row."""

    @classmethod
    def parse(cls, model: type[models.Model], declared: Any) -> Awake | None:
        """Parse ``idle``; None for None. Raises ``FieldDoesNotExist`` and ``FieldError``."""
        if declared is None:
            return None
        if not isinstance(declared, (tuple, list)) or len(declared) != 2 or not isinstance(declared[0], str):
            raise FieldError(f"expected a column and a timedelta, not {declared!r}")
        path, period = declared
        if not isinstance(period, timedelta) or period <= timedelta(0):
            raise FieldError(f"expected a timedelta above zero, not {period!r}")
        *relations, field = follow(model, path)
        if not isinstance(field, models.DateTimeField):
            raise FieldError(f"{path} is not a DateTimeField")
        if any(relation.one_to_many or relation.many_to_many for relation in relations):
            raise FieldError(f"{path} may have several values for one row")
        is_own = not relations and field.model._meta.concrete_model is model._meta.concrete_model
        return cls(path, period, field if is_own else None)

    @property
    def rest(self) -> timedelta:
        """The time between two writes of the column after touches."""
        return self.period / 24

    def condition(self) -> models.Q:
        """The rows that are awake. Rows with null are asleep."""
        return models.Q(**{f"{self.path}__gt": TimeAgo(self.period)})


MOMENT = Moment()
"""Times as Redis holds them: microseconds since 1970 in UTC."""
