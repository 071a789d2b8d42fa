"""Kinds of values: their *units*, the 64-bit integers that values become, their scores, and distances between two."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from itertools import pairwise
from struct import Struct
from typing import Any, Final

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_duration

from ..exceptions import Unrankable

__all__ = [
    "DECIMALS",
    "EXACT",
    "EXACT_LOW",
    "HIGHEST",
    "LAST",
    "LOWEST",
    "NUL",
    "SPAN",
    "Band",
    "Big",
    "Boolean",
    "Day",
    "Distance",
    "Fixed",
    "Float",
    "Kind",
    "Moment",
    "Number",
    "Span",
    "is_queryable",
    "pack",
    "unpack",
]

EXACT: Final = 2**53
"""The highest integer up to which every integer has a double of its own."""

EXACT_LOW: Final = -EXACT
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
SPAN: Final = 2**64
"""An upper bound of the distance between two values."""

DECIMALS: Final = Context(prec=60)
"""Precise enough for every value, independent of the context of the caller's thread."""

Number = int | float
Distance = int | float | Decimal | timedelta

Band = Distance | tuple[Distance, Distance]
"""A distance below and above a score, or one for both."""


NUL: Final = b"\0"
"""Precedes the 8 tie bytes of a member in an index whose other members have none. No primary key begins with it."""

LAST: Final = b"\xff"
"""Follows all primary keys: as UTF-8, none has such a byte."""


def pack(units: int) -> bytes:
    """Return a 64-bit integer as bytes that sort as it does."""
    return (units - LOWEST).to_bytes(8, "big")


def unpack(code: bytes) -> int:
    return int.from_bytes(code, "big") + LOWEST


def beyond(units: int) -> Unrankable:
    return Unrankable(f"{units} lies beyond 64 bits (-2**63 to 2**63 - 1)")


def is_queryable(key: Any, vendor: str) -> bool:
    """Return True unless ``key`` is an integer that a query can't name: one beyond 64 bits. MySQL's may be unsigned."""
    return not isinstance(key, int) or LOWEST <= key <= (SPAN - 1 if vendor == "mysql" else HIGHEST)


def plain_number(value: Any) -> Decimal:
    """Return a number as the decimal that its text shows (0.1 is a tenth)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(f"expected a number, not {value!r}")
    return Decimal(str(value))


def timespan(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError(f"expected a timedelta, not {value!r}")
    return value


def parse_number(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    whole = number.is_finite() and -SPAN <= number <= SPAN and number == number.to_integral_value()
    return int(number) if whole else number


def parse_timespan(text: str) -> timedelta:
    try:
        span = parse_duration(text)
    except OverflowError:
        span = None
    if span is None:
        raise ValueError(f"{text!r} is not a duration such as P3D or 12:00:00")
    return span


_DOUBLE: Final = Struct(">d")
_INTEGER: Final = Struct(">q")


class Kind:
    """A type of value: its units, its score, and distances between two values.

    This base is the kind of plain integers; subclasses override what differs.
    """

    is_wide: bool = False
    """True if units may lie beyond ±2**53, where the score is only the nearest double."""

    lowest: Number = LOWEST
    """The key of the lowest value that can be ranked and that Python can represent."""

    highest: Number = HIGHEST

    whole: Callable[[Any], int] = staticmethod(int)
    """A value as an integer of any size, in the order of values."""

    def units(self, value: Any) -> int:
        """Return ``value`` as a 64-bit integer. Raises :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.whole(value)
        if LOWEST <= units <= HIGHEST:
            return units
        raise beyond(units)

    def value(self, units: int) -> Any:
        return units

    def key(self, value: Any) -> Number:
        """Return a number for ``value`` without loss: its units; for floats, the value."""
        return self.units(value)

    def at(self, key: Number) -> Any:
        return self.value(int(key))

    def ranges(self, low: Number, high: Number, count: int) -> list[tuple[Number, Number]]:
        """Return at most ``count`` ranges of keys of the same width, both ends included, from ``low`` to ``high``."""
        width = -(-(int(high) - int(low) + 1) // count)
        return [(at, min(at + width - 1, int(high))) for at in range(int(low), int(high) + 1, width)]

    def limits(self, *, as_score: bool) -> tuple[Number, Number] | None:
        """Return the lowest and the highest key that can be ranked; None if no column can hold others."""
        return (EXACT_LOW, EXACT) if as_score else None

    decode: Callable[[float], Any] = staticmethod(int)
    """The value that was stored as a score: exact, unless the kind is wide and the value lies beyond ±2**53."""

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """Return a function from the values of an order with this one criterion to the score and the tie bytes. It
        runs a million times, so it makes as few calls as possible."""
        whole = self.whole

        def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
            units = whole(values[0])
            if EXACT_LOW <= units <= EXACT:
                return units, b""
            raise Unrankable(
                f"{units} is beyond ±2**53, up to which scores are exact: as the first criterion, larger values need a "
                "BigIntegerField, or a DecimalField of more than 15 digits"
            )

        def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
            # 2**53 and 2**53 + 1 share a double, so 2**53 needs tie bytes too.
            units = whole(values[0])
            if EXACT_LOW < units < EXACT:
                return units, b""
            if LOWEST <= units <= HIGHEST:
                return float(units), NUL + pack(units)
            raise beyond(units)

        return encode_wide if self.is_wide else encode

    def encoder_of_first(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """Return a function from the values of several criteria to the score and the tie bytes of the first one."""
        units_of = self.units

        def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
            units = units_of(values[0])
            return (units if EXACT_LOW < units < EXACT else float(units)), pack(units)

        return encode_wide if self.is_wide else self.encoder()

    def bound(self, value: Any) -> tuple[float, bytes]:
        """Return the score of ``value``, and its packed units if the score is not exact. Raises
        :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.units(value)
        return float(units), pack(units) if self.is_wide and not EXACT_LOW < units < EXACT else b""

    def check(self, value: Any) -> Any:
        """Return ``value`` if it is valid in a query. Raises ``ValueError``."""
        if type(value) is int and LOWEST <= value <= HIGHEST:  # a call may have a thousand of them
            return value
        number = plain_number(value)
        if not number.is_finite() or number != number.to_integral_value():
            raise ValueError(f"expected a whole number, not {value!r}")
        if not -SPAN <= number <= SPAN:  # before 1e999999 is expanded
            raise ValueError(f"{value} lies beyond 64 bits")
        return value

    def distance(self, value: Any) -> Number:
        """Return a distance between two values in units, at most 2**64. Raises ``ValueError``."""
        if type(value) is int and 0 <= value <= SPAN:
            return value
        return self._whole(plain_number(value), Decimal(1))

    def parse_distance(self, text: str) -> Distance:
        """Parse a distance in a query string. Raises ``ValueError``."""
        return parse_number(text)

    @staticmethod
    def _whole(value: Any, unit: Any) -> int:
        """Return the whole units in ``value``. Scores are whole units too, so rounding down loses no member."""
        if isinstance(value, timedelta):
            whole: int = value // unit
        elif not value.is_finite():
            raise ValueError(f"{value} is not finite")
        elif value >= DECIMALS.multiply(SPAN, unit):  # 1e999999 takes half a minute to expand
            whole = SPAN
        else:
            whole = int(DECIMALS.divide_int(value, unit)) if value >= 0 else -1
        if whole < 0:
            raise ValueError(f"{value} is negative")
        return min(whole, SPAN)


class Bounded(Kind):
    """A kind whose every value in a column can be ranked."""

    def limits(self, *, as_score: bool) -> None:
        return None


class Big(Bounded):
    """64-bit integers."""

    is_wide = True


class Boolean(Bounded):
    lowest, highest = 0, 1
    decode = staticmethod(bool)

    def value(self, units: int) -> bool:
        return bool(units)

    def check(self, value: Any) -> Any:
        return value if isinstance(value, bool) else super().check(value)


class Float(Kind):
    """Floats. The score and the key are the number itself; the units are its bits, and only their order matters."""

    lowest, highest = -sys.float_info.max, sys.float_info.max

    def units(self, value: Any) -> int:
        (bits,) = _INTEGER.unpack(_DOUBLE.pack(self.key(value)))
        # The bits of negative numbers sort in reverse, so all but the sign are flipped.
        return int(bits if bits >= 0 else bits ^ HIGHEST)

    def value(self, units: int) -> float:
        (number,) = _DOUBLE.unpack(_INTEGER.pack(units if units >= 0 else units ^ HIGHEST))
        return number  # type: ignore[no-any-return]

    def key(self, value: Any) -> float:
        try:
            number = float(value)
        except OverflowError:
            raise Unrankable("the number lies beyond the range of floats") from None
        if not math.isfinite(number):
            raise Unrankable(f"{number} can't be ordered")
        return number + 0.0  # -0.0 becomes 0.0: equal values, one score

    def at(self, key: Number) -> Any:
        return key

    def ranges(self, low: Number, high: Number, count: int) -> list[tuple[Number, Number]]:
        steps = (low * (1 - at / count) + high * (at / count) for at in range(count))
        starts = sorted({low, *(min(max(low, step), high) for step in steps)})  # rounded, they may lie beyond
        return [*((one, math.nextafter(other, one)) for one, other in pairwise(starts)), (starts[-1], high)]

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:
        return self.lowest, self.highest

    decode = staticmethod(float)

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        key = self.key
        return lambda values: (key(values[0]), b"")

    def bound(self, value: Any) -> tuple[float, bytes]:
        return self.key(value), b""

    def check(self, value: Any) -> Any:
        if not plain_number(value).is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        return value

    def distance(self, value: Any) -> float:
        number = float(plain_number(value))
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if number < 0:
            raise ValueError(f"{value} is negative")
        return number


@dataclass(frozen=True)
class Fixed(Kind):
    """Decimals, in units of their last place: with two places, 12.34 is stored as 1234."""

    places: int
    is_wide: bool = False

    @property
    def unit(self) -> Decimal:
        return Decimal(1).scaleb(-self.places, DECIMALS)

    def whole(self, value: Any) -> int:
        number = Decimal(value)
        if not number.is_finite():
            raise Unrankable(f"{number} can't be ordered")
        if number.adjusted() + self.places > 18 and number:  # 1e999999 as an integer takes half a minute
            raise Unrankable(f"{number:.3g} lies beyond 2**63 in its last place")
        return int(number.scaleb(self.places, DECIMALS).to_integral_value())

    def value(self, units: int) -> Decimal:
        return Decimal(units).scaleb(-self.places, DECIMALS)

    def decode(self, score: float) -> Decimal:
        return self.value(int(score))

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:
        return (EXACT_LOW, EXACT) if as_score and not self.is_wide else (self.lowest, self.highest)

    def check(self, value: Any) -> Decimal:
        number = plain_number(value)
        if not number.is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        if number.adjusted() + self.places <= 18 and self.value(self.units(number)) != number:
            raise ValueError(f"expected a number of {self.places} decimal places, not {value!r}")
        return number

    def distance(self, value: Any) -> int:
        return self._whole(plain_number(value), self.unit)


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
