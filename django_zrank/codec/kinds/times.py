"""Dates, times and durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_duration

from ...exceptions import Unrankable
from ..spelling import DATE, NUMBER, PRINTABLE, SPAN, TIME
from ..units import Distance, Number, whole_units
from .kind import VALUE, Kind, Schema
from .numbers import parse_number, plain_distance

__all__ = ["Day", "Moment", "Span"]

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_CALENDAR: Final = {
    "postgresql": f"({VALUE} >= '0001-01-01' AND {VALUE} < '10000-01-01')",
    "mysql": f"({VALUE} >= '0001-01-01')",
}
"""By database, the condition that Python has a date or a time. It has no ``infinity``, no year before 1 or beyond 9999,
and no ``0000-00-00``."""


def timespan(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError(f"expected a timedelta, not {value!r}")
    return value


def parse_timespan(text: str) -> timedelta:
    try:
        span = parse_duration(text)
    except OverflowError:
        span = None
    if span is None:
        raise ValueError(f"{text!r} is not a duration such as P3D or 12:00:00")
    return span


class _Time(Kind):
    """Values whose distances are durations."""

    is_criterion = True
    converts = True
    distance_pattern = SPAN
    distance_example = "P3D,P7D"

    @property
    def distance_schema(self) -> Schema:
        return {"type": "string", "description": "A duration.", "example": "7 00:00:00"}

    def distance(self, value: Any) -> int:
        return whole_units(timespan(value), _MICROSECOND)

    def parse_distance(self, text: str) -> Distance:
        return parse_timespan(text)


class Day(_Time):
    """Dates, as days since 1970-01-01. A distance is a ``timedelta`` or a number of days."""

    fields = (models.DateField,)
    called = "date"
    is_facet = True
    pattern = DATE
    distance_pattern = f"(?:{NUMBER}|{SPAN})"
    lowest, highest = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY

    def whole(self, value: date) -> int:
        return value.toordinal() - _EPOCH_DAY

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        whole = self.whole  # the calendar ends before a double does
        return lambda values: (whole(values[0]), b"")

    def value(self, units: int) -> date:
        return date.fromordinal(units + _EPOCH_DAY)

    def check(self, value: Any) -> date:
        if isinstance(value, datetime) or not isinstance(value, date):
            raise ValueError(f"expected a date, not {value!r}")
        return value

    def distance(self, value: Any) -> int:
        if isinstance(value, timedelta):
            return whole_units(value, timedelta(days=1))
        return plain_distance(value)

    def parse_distance(self, text: str) -> Distance:
        try:
            return parse_number(text)
        except ValueError:
            return parse_timespan(text)

    @property
    def distance_schema(self) -> Schema:
        return {"anyOf": [super().distance_schema, {"type": "number", "description": "Days."}]}

    @property
    def schema(self) -> Schema:
        return {"type": "string", "format": "date"}

    def held(self, vendor: str) -> str:
        return _CALENDAR.get(vendor, "")

    def reading(self, vendor: str) -> str:
        return self.readable(vendor) if vendor == "postgresql" else ""  # MySQL's driver reads them as null

    def is_null(self, path: str, connection: Any) -> Q:
        null = super().is_null(path, connection)
        if not self.held(connection.vendor):
            return null
        return null | Q(**{f"{path}__lt": date.min}) | Q(**{f"{path}__gt": date.max})


class Moment(_Time):
    """Datetimes, as microseconds since 1970 in UTC. Doubles hold them from the year 1684 to 2255."""

    fields = (models.DateTimeField,)
    called = "datetime"
    pattern = f"{DATE}(?:[T ]{TIME}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?"
    is_wide = is_zoned = True
    lowest: Number = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    highest: Number = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

    def whole(self, value: datetime | int) -> int:
        """Return microseconds, which some databases return in the first place."""
        if isinstance(value, int):
            if self.lowest <= value <= self.highest:
                return value
            raise Unrankable(f"{value} µs after 1970 lie beyond the years 1 to 9999")
        if value.tzinfo is not UTC and timezone.is_naive(value):  # the first look is faster
            # As Django takes it: in the default time zone, or as it is where the database holds local times.
            value = value.replace(tzinfo=timezone.get_default_timezone() if settings.USE_TZ else UTC)
        return (value - _EPOCH) // _MICROSECOND

    def value(self, units: int) -> datetime:
        moment = _EPOCH + timedelta(microseconds=units)
        return moment if settings.USE_TZ else moment.replace(tzinfo=None)

    def check(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise ValueError(f"expected a datetime, not {value!r}")
        if not settings.USE_TZ and timezone.is_aware(value):
            raise ValueError(f"expected a datetime without a time zone, as USE_TZ is off, not {value!r}")
        return value

    def check_loaded(self, value: Any) -> None:
        if isinstance(value, datetime):
            self.check(value)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time"}

    def held(self, vendor: str) -> str:
        return _CALENDAR.get(vendor, "")

    def reading(self, vendor: str) -> str:
        """On PostgreSQL, its microseconds: the driver takes 3 µs to make a ``datetime``."""
        if vendor == "postgresql" and settings.USE_TZ and type(self.field) is models.DateTimeField:
            return f"CASE WHEN {self.held(vendor)} THEN (EXTRACT(EPOCH FROM {VALUE}) * 1000000)::bigint END"
        return self.readable(vendor) if vendor == "postgresql" else ""


class Span(_Time):
    """Durations, as microseconds."""

    fields = (models.DurationField,)
    called = "duration"
    pattern = PRINTABLE
    is_wide = True

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:
        return self.lowest, self.highest

    def whole(self, value: timedelta) -> int:
        return value // _MICROSECOND

    def value(self, units: int) -> timedelta:
        return timedelta(microseconds=units)

    def check(self, value: Any) -> Any:
        return timespan(value)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "description": "Seconds.", "example": "90.0"}
