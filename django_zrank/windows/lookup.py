"""The lookup ``within``, and the clock that it compares with: the database's.

MySQL's clock has no time zone, so connections that store local times use this process's clock. SQLite, on the same
machine, does too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import models
from django.db.models import Lookup
from django.utils import timezone

from ..codec.kinds import Moment

__all__ = ["LONGEST", "MOMENT", "DatabaseClock", "DayAgo", "TimeAgo", "Within"]

MOMENT: Final = Moment()
"""Times as Redis holds them: microseconds since 1970 in UTC."""

LONGEST: Final = timedelta(days=36525)

_MICROSECOND: Final = timedelta(microseconds=1)


class _Now(str):
    """A parameter with a value of this process's clock, which a call returns anew, for a statement that is run again.
    Declarations are compared by the ``repr()`` of parameters, so it names what was asked for."""

    read: Callable[[], Any]
    asked: str

    def __new__(cls, read: Callable[[], Any], asked: str) -> _Now:
        text = super().__new__(cls, read())
        text.read, text.asked = read, asked
        return text

    def __call__(self) -> str:
        return str(self.read())

    def __repr__(self) -> str:
        return f"<{self.asked}>"


def _is_local(connection: Any) -> bool:
    """Return True if columns of a MySQL connection don't hold times in UTC."""
    return not settings.USE_TZ or connection.timezone_name != "UTC"


class _Timed(models.Func):
    """An expression that depends on the time alone."""

    def get_group_by_cols(self) -> list[Any]:
        return []


class DatabaseClock(_Timed):
    """The time at which the statement runs, in microseconds."""

    def __init__(self) -> None:
        super().__init__(output_field=models.BigIntegerField())

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        return "%s", [_Now(lambda: MOMENT.whole(timezone.now()), "now")]

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        now = "STATEMENT_TIMESTAMP()" if settings.USE_TZ else "STATEMENT_TIMESTAMP()::timestamp"
        # As a subquery, it is computed once for a statement, not for each row: that took as long as reading the row.
        return f"(SELECT (EXTRACT(EPOCH FROM {now}) * 1000000)::bigint)", []  # noqa: S608

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        if _is_local(connection):
            return self.as_sql(compiler, connection)
        return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", []


class _Ago(_Timed):
    """A time ``period`` before the statement runs."""

    column: ClassVar[type[models.Field[Any, Any]]]

    def __init__(self, period: timedelta) -> None:
        super().__init__(output_field=self.column())
        self.period = period


class TimeAgo(_Ago):
    """The time ``period`` before the statement runs."""

    column = models.DateTimeField

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        def moment() -> Any:
            return connection.ops.adapt_datetimefield_value(timezone.now() - self.period)

        return "%s", [_Now(moment, f"{self.period!r} ago")]

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        # An interval of days has 23 to 25 hours each, in a time zone with daylight saving time.
        return "(STATEMENT_TIMESTAMP() - %s * INTERVAL '1 microsecond')", [self.period // _MICROSECOND]

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        if _is_local(connection):
            return self.as_sql(compiler, connection)
        return "(UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND)", [self.period // _MICROSECOND]


class DayAgo(_Ago):
    """The date, in the default time zone, of the time ``period`` before the statement runs."""

    column = models.DateField

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        def day() -> Any:
            return connection.ops.adapt_datefield_value((_local_now() - self.period).date())

        return "%s", [_Now(day, f"day of {self.period!r} ago in {settings.TIME_ZONE}")]

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        return "((STATEMENT_TIMESTAMP() AT TIME ZONE %s) - %s)::date", [settings.TIME_ZONE, self.period]

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        if _is_local(connection):
            return self.as_sql(compiler, connection)

        # CONVERT_TZ() needs tables of time zones, which a server may not have.
        def ahead() -> int:
            offset: Any = timezone.localtime(timezone.now(), timezone.get_default_timezone()).utcoffset()
            return int((offset - self.period) // _MICROSECOND)

        asked = f"day of {self.period!r} ago in {settings.TIME_ZONE}"
        return "DATE(UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)", [_Now(ahead, asked)]


def _local_now() -> Any:
    now = timezone.now()
    return timezone.make_naive(now, timezone.get_default_timezone()) if settings.USE_TZ else now


@models.DateField.register_lookup
class Within(Lookup):
    """``played_at__within=timedelta(days=7)``: the column is later than that long ago. A date is the start of its day
    in the default time zone."""

    lookup_name = "within"

    def get_prep_lookup(self) -> timedelta:
        period = self.rhs
        if not isinstance(period, timedelta) or not timedelta(0) <= period <= LONGEST:
            raise ValueError(f"within: expected a timedelta from 0 to 100 years, not {period!r}")
        return period

    @property
    def is_day(self) -> bool:
        """True if the column holds dates."""
        return not isinstance(self.lhs.output_field, models.DateTimeField)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, parameters = self.process_lhs(compiler, connection)
        limit, further = compiler.compile((DayAgo if self.is_day else TimeAgo)(self.rhs))
        return f"{column} > {limit}", [*parameters, *further]
