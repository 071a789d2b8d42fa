"""Kinds of fields: one class for each, with all that depends on the type of its values, and the kind of a model field.

Code elsewhere asks the kind of a field, and doesn't distinguish Django's classes itself. No I/O.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from ipaddress import IPv4Address
from itertools import pairwise
from numbers import Integral
from numbers import Number as AnyNumber
from struct import Struct
from typing import Any, ClassVar, Final
from uuid import UUID

from django.conf import settings
from django.core.exceptions import FieldError, ImproperlyConfigured, ValidationError
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Collate, Round
from django.utils import timezone
from django.utils.dateparse import parse_duration
from django.utils.ipv6 import clean_ipv6_address

from ..exceptions import Unrankable
from . import spelling
from .fields import is_annotation, value_field
from .spelling import spelled
from .units import DECIMALS, EXACT, EXACT_LOW, HIGHEST, LOWEST, NUL, SPAN, Distance, Number, pack

__all__ = ["KINDS", "Fixed", "Kind", "Moment", "Schema", "key_kind", "kind_of", "listed", "ranked_kind"]


Schema = dict[str, Any]
"""A JSON schema."""

VALUE: Final = "%(expressions)s"
"""The column, in a template of SQL."""


def beyond(units: int) -> Unrankable:
    return Unrankable(f"{units} lies beyond 64 bits (-2**63 to 2**63 - 1)")


def whole_units(value: Any, unit: Any) -> int:
    """Return the whole units in a distance, at most 2**64. Raises ``ValueError``. Scores are whole units too, so
    rounding down loses no member."""
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


class OrNull(models.Func):
    """A value, or null if Python can't represent it."""

    default_alias = "zrank_value"


class Kind:
    """The kind of a field: all that depends on the type of its values, in Redis, in each database, in JSON and in text.

    Fields of a kind can be criteria, facets or keys, or several of these. Fields that can be none have this base class.
    """

    fields: ClassVar[tuple[type[models.Field[Any, Any]], ...]] = ()
    """Django's classes. Their subclasses are of this kind, too, unless another kind names them."""

    called: ClassVar[str] = ""
    """The name in messages."""

    is_criterion: ClassVar[bool] = False
    is_facet: ClassVar[bool] = False
    is_key: ClassVar[bool] = False

    def __init__(self, field: Any = None) -> None:
        self.field = field
        """The field that holds the values: for a relation, its target key."""

    @property
    def declared(self) -> tuple[str, Mapping[str, Any]]:
        """A criterion in the fingerprint of an index: if this changes, all indexes with such criteria are rebuilt."""
        return type(self).__name__, {name: value for name, value in vars(self).items() if name != "field"}

    # As a criterion: *units* are the 64-bit integers that values become, *keys* are numbers for values without loss.

    is_wide: bool = False
    """True if units may lie beyond ±2**53, where the score is only the nearest double."""

    is_zoned: ClassVar[bool] = False
    """True if units depend on ``USE_TZ`` and on the time zone of the database."""

    step: ClassVar[int] = 1
    """The least difference between two keys; 0 for floats."""

    lowest: Number = LOWEST
    """The key of the lowest value that can be ranked and that Python can represent."""

    highest: Number = HIGHEST

    whole: Callable[[Any], int]
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
        return None

    def decode(self, score: float) -> Any:
        """Return the value that was stored as a score: exact, unless the kind is wide and it lies beyond ±2**53."""
        return self.value(int(score))

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

    check: Callable[[Any], Any]
    """Return a value if it is valid in a query. Raises ``ValueError``."""

    def check_loaded(self, value: Any) -> None:
        """Check the value of an instance, which may have been given another type. Raises ``ValueError``."""

    @property
    def doubt(self) -> tuple[str, str] | None:
        """The problem that a check warns of, and its hint; None if every value of the column can be ranked as it is."""
        return None

    # Distances between two values

    distance_pattern: ClassVar[str] = spelling.NUMBER
    """The regular expression of a distance in a query string."""

    distance_example: ClassVar[str] = "50,100"

    distance: Callable[[Any], Number]
    """Return a distance between two values in units, at most 2**64. Raises ``ValueError``."""

    parse_distance: Callable[[str], Distance]
    """Parse a distance in a query string. Raises ``ValueError``."""

    distance_schema: ClassVar[Schema] = {"type": "number", "example": 10}
    """One side of a band, as a response shows it."""

    # In JSON, and in text that clients send

    pattern: ClassVar[str] = ""
    """The regular expression of a value; empty for any text."""

    is_text: ClassVar[bool] = False

    schema: Schema = {"type": "string"}
    """The values, as REST framework's encoder writes them."""

    def spelled(self, text: str) -> str:
        """Return ``text`` as Django reads it. Raises ``ValueError`` if it isn't a spelling of a value."""
        return spelled(self.pattern, text) if self.pattern else text

    # As a facet

    def facet_text(self, value: Any) -> str:
        """Return the text of a value in the name of its ranking: the same on every database."""
        return str(value)

    def parse_facet(self, given: Any) -> Any:
        """Return a value to filter by in the field's own type. Raises what ``to_python()`` does, or ``ValueError``."""
        value = self.field.to_python(given)
        str(value).encode()  # raises for lone surrogates, and for integers of thousands of digits
        return value

    # As a key: ``str(parse(value))`` is the text of a value.

    exact: ClassVar[type | None] = None
    """The type whose values need no parsing, if there is one: ``str(value)`` is their text."""

    parse: Callable[[Any], Any]
    """A function from a value, or its text as any database casts it, to the value as Django reads it. It raises
    ``ValueError``."""

    def parse_input(self, given: Any) -> Any:
        """Parse a value that a caller gives. Raises ``ValueError``."""
        # Fields turn 7.5 into 7, and True into 1.
        if isinstance(given, bool):
            raise ValueError(f"{given!r} is a bool")
        return self.convert_input(given)

    def convert_input(self, given: Any) -> Any:
        try:
            value = self.field.to_python(given)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None
        except (OverflowError, TypeError) as error:
            raise ValueError(str(error)) from None
        is_fraction = isinstance(given, AnyNumber) and not isinstance(given, Integral)
        if value is None or (is_fraction and value != given):
            raise ValueError(f"{given!r} is not a value of {self.field}")
        return self.parse(value)

    # In a database

    converts: ClassVar[bool] = False
    """True if SQLite stores values as another type."""

    held: ClassVar[Mapping[str, str]] = {}
    """By database, the template of a condition that Python can represent a column's value. Others count as null."""

    def reading(self, vendor: str) -> str:
        """Return the template by which a column is read for Redis; empty if it is read as it is."""
        return self.readable(vendor)

    def readable(self, vendor: str) -> str:
        """Return the template of a value, null if Python can't represent it; empty if it can represent all."""
        return f"CASE WHEN {self.held[vendor]} THEN {VALUE} END" if vendor in self.held else ""

    def comparable(self, path: str, connection: Any) -> Any:
        """Return an expression that a database sorts and groups as Redis sorts and groups the stored values."""
        template = self.readable(connection.vendor)
        return OrNull(F(path), template=template) if template else F(path)

    def is_null(self, path: str, connection: Any) -> Q:
        """Return the condition that a column counts as null."""
        null = Q(**{f"{path}__isnull": True})
        if connection.vendor in self.held:
            null |= Q(**{f"{path}__lt": self.at(self.lowest)}) | Q(**{f"{path}__gt": self.at(self.highest)})
        return null

    def collation(self, connection: Any) -> str | None:
        """Return a collation in which different values are never equal; None if the column's own is one."""
        return None


# Numbers and booleans

_DOUBLE: Final = Struct(">d")
_INTEGER: Final = Struct(">q")

_DIGITS: Final = re.compile(r"-?[0-9]+")


def plain_number(value: Any) -> Decimal:
    """Return a number as the decimal that its text shows (0.1 is a tenth)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(f"expected a number, not {value!r}")
    return Decimal(str(value))


def whole_number(value: Any) -> Any:
    """Return a whole number of up to 64 bits. Raises ``ValueError``."""
    if type(value) is int and LOWEST <= value <= HIGHEST:  # a call may have a thousand of them
        return value
    number = plain_number(value)
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(f"expected a whole number, not {value!r}")
    if not -SPAN <= number <= SPAN:  # before 1e999999 is expanded
        raise ValueError(f"{value} lies beyond 64 bits")
    return value


def plain_distance(value: Any) -> int:
    """Return a number as a distance in whole units. Raises ``ValueError``."""
    if type(value) is int and 0 <= value <= SPAN:
        return value
    return whole_units(plain_number(value), Decimal(1))


def parse_number(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    whole = number.is_finite() and -SPAN <= number <= SPAN and number == number.to_integral_value()
    return int(number) if whole else number


class _Number(Kind):
    is_criterion = True
    whole: Callable[[Any], int] = staticmethod(int)
    distance: Callable[[Any], Number] = staticmethod(plain_distance)
    pattern = spelling.REAL
    schema = {"type": "number"}

    parse_distance = staticmethod(parse_number)


class Integer(_Number):
    """Integers of up to 32 bits: SQLite's columns hold more than they say."""

    fields = (models.IntegerField,)
    called = "integer"
    is_facet = is_key = True
    pattern = spelling.WHOLE
    schema = {"type": "integer"}

    @property
    def declared(self) -> tuple[str, Mapping[str, Any]]:
        return "Kind" if type(self) is Integer else type(
            self
        ).__name__, {}  # its name when the first were built

    decode = staticmethod(int)  # type: ignore[assignment]

    def limits(self, *, as_score: bool) -> tuple[Number, Number] | None:
        return (EXACT_LOW, EXACT) if as_score and not self.is_wide else None

    check = staticmethod(whole_number)

    exact = int
    parse = staticmethod(int)

    def parse_input(self, given: Any) -> Any:
        # int() takes 1_0, digits of other scripts, and spaces.
        if isinstance(given, str) and not _DIGITS.fullmatch(given):
            raise ValueError(f"{given!r} is not a whole number")
        return super().parse_input(given)


class Big(Integer):
    """64-bit integers."""

    fields = (models.BigIntegerField,)
    called = ""  # an integer, too
    is_wide = True


class Float(_Number):
    """Floats. The score and the key are the number itself; the units are its bits, and only their order matters."""

    fields = (models.FloatField,)
    called = "float"
    step = 0
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

    decode = staticmethod(float)  # type: ignore[assignment]

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        key = self.key
        return lambda values: (key(values[0]), b"")

    def bound(self, value: Any) -> tuple[float, bytes]:
        return self.key(value), b""

    def check(self, value: Any) -> Any:
        if not plain_number(value).is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        return value

    def readable(self, vendor: str) -> str:
        """Return a template that makes an annotation a double: PostgreSQL's averages of integers have more digits."""
        is_decimal = vendor == "postgresql" and is_annotation(self.field)
        return f"CAST({VALUE} AS double precision)" if is_decimal else ""

    def distance(self, value: Any) -> float:
        number = float(plain_number(value))
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if number < 0:
            raise ValueError(f"{value} is negative")
        return number


_ROUNDED: Final = {"postgresql": f"ROUND(CAST({VALUE} AS numeric), {{}})"}
"""By database, the template of a decimal in a number of places, if it differs from that of the others."""


class Fixed(_Number):
    """Decimals, in units of their last place: with two places, 12.34 is stored as 1234."""

    fields = (models.DecimalField,)
    called = "Decimal"
    converts = True

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.places: int = field.decimal_places or 0
        self.is_wide = field.max_digits is None or 10**field.max_digits > EXACT

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

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:
        return (EXACT_LOW, EXACT) if as_score and not self.is_wide else (self.lowest, self.highest)

    def check(self, value: Any) -> Decimal:
        number = plain_number(value)
        if not number.is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        if number.adjusted() + self.places <= 18 and self.value(self.units(number)) != number:
            raise ValueError(f"expected a number of {self.places} decimal places, not {value!r}")
        return number

    @property
    def doubt(self) -> tuple[str, str] | None:
        if self.field.decimal_places is None:
            problem = "has no decimal_places, so it is ranked by whole numbers."
            return problem, "Set decimal_places, and max_digits to at most 18."
        if self.field.max_digits is None or 10**self.field.max_digits > 2**63:
            problem = (
                "may hold more digits than 64 bits do. "
                "Rows with a value beyond ±2**63 in the last place will not be ranked."
            )
            return problem, "Lower max_digits to 18."
        return None

    def distance(self, value: Any) -> int:
        return whole_units(plain_number(value), self.unit)

    def comparable(self, path: str, connection: Any) -> Any:
        # SQLite stores decimals as floats, whose rounding errors would split one value in two.
        if connection.vendor == "sqlite" or self.field.decimal_places is None:
            return Round(F(path), precision=self.places)
        return super().comparable(path, connection)

    def readable(self, vendor: str) -> str:
        """Return a template that rounds an annotation, of which a database computes more places, such as an average."""
        if not is_annotation(self.field):
            return ""
        return _ROUNDED.get(vendor, f"ROUND({VALUE}, {{}})").format(self.places)


_BOOLEANS: Final = {
    "true": True, "t": True, "1": True,
    "false": False, "f": False, "0": False,
}  # fmt: skip


class Boolean(_Number):
    fields = (models.BooleanField,)
    called = "bool"
    is_facet = is_key = True
    pattern = "(?i:true|false)"
    schema = {"type": "boolean"}
    lowest, highest = 0, 1
    decode = staticmethod(bool)  # type: ignore[assignment]

    def value(self, units: int) -> bool:
        return bool(units)

    def check(self, value: Any) -> Any:
        return value if isinstance(value, bool) else whole_number(value)

    def spelled(self, text: str) -> str:
        return super().spelled(text).title()

    parse_input = Kind.convert_input

    @staticmethod
    def parse(value: Any) -> bool:
        try:
            return _BOOLEANS[str(value).lower()]
        except KeyError:
            raise ValueError(f"{value!r} is neither true nor false") from None


# Dates, times and durations

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


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


_DURATION: Final[Schema] = {"type": "string", "description": "A duration.", "example": "7 00:00:00"}


class _Time(Kind):
    """Values whose distances are durations."""

    is_criterion = True
    converts = True
    distance_pattern = spelling.SPAN
    distance_example = "P3D,P7D"
    distance_schema = _DURATION

    def distance(self, value: Any) -> int:
        return whole_units(timespan(value), _MICROSECOND)

    parse_distance: Callable[[str], Distance] = staticmethod(parse_timespan)


class _Dated(_Time):
    """Dates and times of a calendar. Python's has no ``infinity``, no year before 1 or beyond 9999, and no
    ``0000-00-00``."""

    held = {
        "postgresql": f"({VALUE} >= '0001-01-01' AND {VALUE} < '10000-01-01')",
        "mysql": f"({VALUE} >= '0001-01-01')",
    }

    def reading(self, vendor: str) -> str:
        return self.readable(vendor) if vendor == "postgresql" else ""  # MySQL's driver reads others as null


class Day(_Dated):
    """Dates, as days since 1970-01-01. A distance is a ``timedelta`` or a number of days."""

    fields = (models.DateField,)
    called = "date"
    is_facet = True
    pattern = spelling.DATE
    schema = {"type": "string", "format": "date"}
    distance_pattern = f"(?:{spelling.NUMBER}|{spelling.SPAN})"
    distance_schema = {"anyOf": [_DURATION, {"type": "number", "description": "Days."}]}
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


class Moment(_Dated):
    """Datetimes, as microseconds since 1970 in UTC. Doubles hold them from the year 1684 to 2255."""

    fields = (models.DateTimeField,)
    called = "datetime"
    pattern = f"{spelling.DATE}(?:[T ]{spelling.TIME}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?"
    schema = {"type": "string", "format": "date-time"}
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

    def reading(self, vendor: str) -> str:
        """On PostgreSQL, its microseconds: the driver takes 3 µs to make a ``datetime``."""
        if vendor == "postgresql" and settings.USE_TZ and type(self.field) is models.DateTimeField:
            return f"CASE WHEN {self.held[vendor]} THEN (EXTRACT(EPOCH FROM {VALUE}) * 1000000)::bigint END"
        return super().reading(vendor)


class Span(_Time):
    """Durations, as microseconds."""

    fields = (models.DurationField,)
    called = "duration"
    pattern = spelling.PRINTABLE
    schema = {"type": "string", "description": "Seconds.", "example": "90.0"}
    is_wide = True

    def limits(self, *, as_score: bool) -> tuple[Number, Number]:
        return self.lowest, self.highest

    def whole(self, value: timedelta) -> int:
        return value // _MICROSECOND

    def value(self, units: int) -> timedelta:
        return timedelta(microseconds=units)

    check = staticmethod(timespan)


# Text, UUIDs and IP addresses: facets and keys, which can't be ranked


class Text(Kind):
    fields = (models.CharField, models.FilePathField, models.TextField)
    called = "text"
    is_facet = is_key = is_text = True

    @staticmethod
    def parse(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not text")
        if not value.isascii():
            value.encode()  # raises for lone surrogates, which neither databases nor Redis accept
        return value if type(value) is str else str.__str__(value)  # the value of an enum

    def collation(self, connection: Any) -> str | None:
        """To the default collations of MariaDB and MySQL, "A", "a" and "a " are equal."""
        if connection.vendor == "mysql":
            return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
        exact = {"postgresql": "C", "sqlite": "BINARY"}
        return exact.get(connection.vendor) if self.field.db_collation else None

    def comparable(self, path: str, connection: Any) -> Any:
        collation = self.collation(connection)
        return Collate(F(path), collation) if collation else F(path)


class Identifier(Kind):
    """UUIDs."""

    fields = (models.UUIDField,)
    called = "UUID"
    is_facet = is_key = converts = True
    pattern = "[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}"
    schema = {"type": "string", "format": "uuid"}
    exact = UUID

    @staticmethod
    def parse(value: Any) -> UUID:
        return value if isinstance(value, UUID) else UUID(str(value))


class Address(Kind):
    """IP addresses."""

    fields = (models.GenericIPAddressField,)
    called = "IP address"
    is_facet = is_key = True
    pattern = "[0-9a-fA-F:.]+(?:%[0-9a-zA-Z.-]+)?"

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        formats = {"both": ["ipv4", "ipv6"]}.get(self.field.protocol.lower(), [self.field.protocol.lower()])
        found = [{"type": "string", "format": one, "maxLength": self.field.max_length} for one in formats]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def parse(self, value: Any) -> str:
        address, slash, bits = str(value).partition("/")
        # PostgreSQL's inet ends with the length of the prefix; a shorter one is a network.
        if slash and bits != ("128" if ":" in address else "32"):
            raise ValueError(f"{value!r} is a network, not an address")
        if ":" not in address:
            return str(IPv4Address(address))
        try:
            return clean_ipv6_address(address, self.field.unpack_ipv4)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None

    def facet_text(self, value: Any) -> str:
        # Where a column of addresses is text, another program may have spelled one differently, or stored other text.
        with suppress(ValidationError):
            value = self.field.to_python(value)
        return str(value)

    def parse_facet(self, given: Any) -> Any:
        value = self.parse(super().parse_facet(given))  # to_python() takes any text
        self.field.run_validators(value)
        return value


# Of fields


KINDS: Final[tuple[type[Kind], ...]] = (
    Integer, Big, Float, Fixed, Boolean, Day, Moment, Span, Text, Identifier, Address,
)  # fmt: skip
"""All kinds, in the order in which messages list them."""

_BY_CLASS: Final = {cls: kind for kind in KINDS for cls in kind.fields}


def _kind_of_class(cls: type) -> type[Kind]:
    return next((_BY_CLASS[base] for base in cls.__mro__ if base in _BY_CLASS), Kind)


@cache
def kind_of(field: Any) -> Kind:
    """Return the kind of a model field's values; for a relation, of its target key."""
    field = value_field(field)
    return _kind_of_class(type(field))(field)


def ranked_kind(field: Any) -> Kind:
    """Return the kind of a criterion. Raises ``FieldError`` if it can't be ranked."""
    kind = kind_of(field)
    if kind.is_text:
        raise FieldError(f"{kind.field} is text, which can't be ranked; the primary key always breaks ties")
    if not kind.is_criterion:
        raise FieldError(f"{kind.field} is a {type(kind.field).__name__}, which can't be ranked")
    return kind


@cache
def key_kind(field: Any) -> Kind:
    """Return the kind of a key, whose values have one text: in Redis, in marks, and however a database casts them.

    PostgreSQL casts the address ``10.0.0.1`` to ``10.0.0.1/32`` and true to ``true``; SQLite holds a UUID as 32 digits.
    A value, or any of these texts, is parsed, and the ``str()`` of the result is its text. Types whose text depends on
    the database or the session (dates, times, decimals, floats, bytes) have none: raises ``ImproperlyConfigured``.
    """
    field = value_field(field)
    # By the type of the column: a field of a project may have another class.
    kind = _kind_of_class(getattr(models, field.get_internal_type(), type(None)))
    if not kind.is_key:
        raise ImproperlyConfigured(
            f"the text of a {type(field).__name__} is not the same in Python and in every database"
        )
    for name in ("from_db_value", "get_prep_value", "get_db_prep_value"):
        maker = next((cls for cls in type(field).__mro__ if name in vars(cls)), None)
        if maker is not None and not maker.__module__.startswith("django."):
            raise ImproperlyConfigured(
                f"{type(field).__name__}.{name}() converts its values, so their text in the database differs"
            )
    return kind(field)


def listed(use: str) -> str:
    """Return the names of the kinds that have one use, ``is_criterion``, ``is_facet`` or ``is_key``."""
    *names, last = (kind.called for kind in KINDS if kind.called and getattr(kind, use))
    return f"{', '.join(names)} and {last}"
