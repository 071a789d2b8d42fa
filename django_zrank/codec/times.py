"""Kinds of values: dates, datetimes and durations, as units and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from ..exceptions import Unrankable
from .kinds import Bounded
from .units import HIGHEST, LOWEST, Distance, Number, parse_number, parse_timespan, timespan

__all__ = ["Day", "Moment", "Span"]

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Day(Bounded):
    """Dates, as days since 1970-01-01. A distance is a ``timedelta`` or a number of days."""

    lowest, highest = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY

    def whole(self, value: date) -> int:
        return value.toordinal() - _EPOCH_DAY

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        whole = self.whole  # the calendar ends before a double does
        return lambda values: (whole(values[0]), b"")

    def value(self, units: int) -> date:
        return date.fromordinal(units + _EPOCH_DAY)

    def decode(self, score: float) -> date:
        return self.value(int(score))

    def check(self, value: Any) -> date:
        if isinstance(value, datetime) or not isinstance(value, date):
            raise ValueError(f"expected a date, not {value!r}")
        return value

    def distance(self, value: Any) -> int:
        if isinstance(value, timedelta):
            return self._whole(value, timedelta(days=1))
        return super().distance(value)  # type: ignore[return-value]

    def parse_distance(self, text: str) -> Distance:
        try:
            return parse_number(text)
        except ValueError:
            return parse_timespan(text)


class Moment(Bounded):
    """Datetimes, as microseconds since 1970 in UTC. Doubles hold them from the year 1684 to 2255."""

    is_wide = True
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

    def decode(self, score: float) -> Any:
        return self.value(int(score))

    def check(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise ValueError(f"expected a datetime, not {value!r}")
        if not settings.USE_TZ and timezone.is_aware(value):
            raise ValueError(f"expected a datetime without a time zone, as USE_TZ is off, not {value!r}")
        return value

    def distance(self, value: Any) -> int:
        return self._whole(timespan(value), _MICROSECOND)

    def parse_distance(self, text: str) -> Distance:
        return parse_timespan(text)


class Span(Moment):
    """Durations, as microseconds."""

    lowest: Number = LOWEST
    highest: Number = HIGHEST

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:  # type: ignore[override]
        return self.lowest, self.highest

    def whole(self, value: timedelta) -> int:  # type: ignore[override]
        return value // _MICROSECOND

    def value(self, units: int) -> timedelta:  # type: ignore[override]
        return timedelta(microseconds=units)

    def check(self, value: Any) -> Any:
        return timespan(value)
