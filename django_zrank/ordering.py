"""Criteria -> what a sorted set stores: a score, and bytes that break ties. Pure functions, no I/O.

A sorted set holds its scores as doubles. Every kind of value below maps onto integers of at most 53 bits, or
onto the double itself, so that the order in Redis is the order in the database and the arithmetic of a band
(my score minus ten) is exact, its ends included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import FieldError
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.utils import timezone
from django.utils.dateparse import parse_duration

from .exceptions import Unrankable

__all__ = ["EXACT", "Criterion", "Kind", "Order", "follow", "kind_of"]

EXACT: Final = 2**53
"""Every integer up to here, and none beyond, is a double of its own."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Number = int | float
Distance = int | float | Decimal | timedelta


def _exact(number: int) -> int:
    if not -EXACT <= number <= EXACT:
        raise Unrankable(f"{number} lies beyond ±2**53, which a sorted set's score holds exactly")
    return number


def _number(value: Any) -> Decimal:
    """A plain number, as the decimal that its text shows (0.1 is a tenth)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(f"expected a number, not {value!r}")
    return Decimal(str(value))


def _span(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError(f"expected a timedelta, not {value!r}")
    return value


def _parse_number(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    whole = number.is_finite() and -EXACT <= number <= EXACT and number == number.to_integral_value()
    return int(number) if whole else number


def _parse_span(text: str) -> timedelta:
    try:
        span = parse_duration(text)
    except OverflowError:
        span = None
    if span is None:
        raise ValueError(f"{text!r} is not a duration such as P3D or 12:00:00")
    return span


class Kind:
    """How one type of value becomes a score and back, and what a distance between two values is.

    This base is the kind of plain integers; the others override what differs.
    """

    def encode(self, value: Any) -> Number:
        """``value`` as a score. Raises :exc:`~django_zrank.exceptions.Unrankable`."""
        return _exact(int(value))

    def decode(self, score: float) -> Any:
        """The value that was stored as ``score``."""
        return int(score)

    def distance(self, value: Any) -> Number:
        """A distance between two values, in units of the score. Raises ``ValueError``."""
        if type(value) is int and 0 <= value <= EXACT:
            return value
        return self._units(_number(value), 1)

    def parse_distance(self, text: str) -> Distance:
        """A distance out of a query string. Raises ``ValueError``."""
        return _parse_number(text)

    @staticmethod
    def _units(value: Any, unit: Any) -> int:
        """Whole units in ``value``. Scores are whole units too, so rounding down loses no member."""
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise ValueError(f"{value} is not finite")
            if value > 2 * EXACT * unit:  # 1e999999 is short to write, and takes half a minute to expand
                return 2 * EXACT
        units = math.floor(value / unit) if value >= 0 * unit else -1
        if units < 0:
            raise ValueError(f"{value} is negative")
        return min(units, 2 * EXACT)


class Boolean(Kind):
    def decode(self, score: float) -> bool:
        return bool(score)


class Float(Kind):
    def encode(self, value: Any) -> float:
        number = float(value)
        if not math.isfinite(number):
            raise Unrankable(f"{number} has no place in an order")
        return number + 0.0  # -0.0 becomes 0.0: equal values, one score

    def decode(self, score: float) -> float:
        return score

    def distance(self, value: Any) -> float:
        number = float(_number(value))
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if number < 0:
            raise ValueError(f"{value} is negative")
        return number


@dataclass(frozen=True)
class Fixed(Kind):
    """Decimals, as integers of their last place: with two places 12.34 is stored as 1234."""

    places: int

    @property
    def unit(self) -> Decimal:
        return Decimal(1).scaleb(-self.places)

    def encode(self, value: Any) -> int:
        number = Decimal(value)
        if not number.is_finite():
            raise Unrankable(f"{number} has no place in an order")
        return _exact(int(number.scaleb(self.places).to_integral_value()))

    def decode(self, score: float) -> Decimal:
        return Decimal(int(score)).scaleb(-self.places)

    def distance(self, value: Any) -> int:
        return self._units(_number(value), self.unit)


class Day(Kind):
    """Dates, as days since 1970-01-01. A distance is a ``timedelta`` or a number of days."""

    def encode(self, value: date) -> int:
        return value.toordinal() - _EPOCH_DAY

    def decode(self, score: float) -> date:
        return date.fromordinal(int(score) + _EPOCH_DAY)

    def distance(self, value: Any) -> int:
        if isinstance(value, timedelta):
            return self._units(value, timedelta(days=1))
        return super().distance(value)  # type: ignore[return-value]

    def parse_distance(self, text: str) -> Distance:
        try:
            return _parse_number(text)
        except ValueError:
            return _parse_span(text)


class Moment(Kind):
    """Datetimes, as microseconds since 1970 in UTC: exact from the year 1684 to 2255."""

    def encode(self, value: datetime) -> int:
        if timezone.is_naive(value):
            value = value.replace(tzinfo=UTC)
        return _exact((value - _EPOCH) // _MICROSECOND)

    def decode(self, score: float) -> datetime:
        moment = _EPOCH + timedelta(microseconds=int(score))
        return moment if settings.USE_TZ else moment.replace(tzinfo=None)

    def distance(self, value: Any) -> int:
        return self._units(_span(value), _MICROSECOND)

    def parse_distance(self, text: str) -> Distance:
        return _parse_span(text)


class Span(Moment):
    """Durations, as microseconds."""

    def encode(self, value: timedelta) -> int:  # type: ignore[override]
        return _exact(value // _MICROSECOND)

    def decode(self, score: float) -> timedelta:  # type: ignore[override]
        return timedelta(microseconds=int(score))


def kind_of(field: models.Field[Any, Any]) -> Kind:
    """The kind of a model field's values. Raises ``FieldError`` where they can't be ranked."""
    match field:
        case models.GeneratedField():
            return kind_of(field.output_field)  # type: ignore[arg-type]
        case models.BooleanField():
            return Boolean()
        case models.DecimalField():
            return Fixed(field.decimal_places or 0)
        case models.DateTimeField():  # before DateField, its base class
            return Moment()
        case models.DateField():
            return Day()
        case models.DurationField():
            return Span()
        case models.FloatField():
            return Float()
        case models.IntegerField() if not field.is_relation:
            return Kind()
    raise FieldError(f"{field} is a {type(field).__name__}, which can't be ranked")


def follow(model: type[models.Model], path: str) -> Iterator[Any]:
    """Each field on a lookup path such as ``profile__level``. Raises ``FieldDoesNotExist``."""
    options: Any = model._meta
    for name in path.split(LOOKUP_SEP):
        if options is None:
            raise FieldError(f"{path}: there is nothing behind a field that is not a relation")
        field: Any = options.pk if name == "pk" else options.get_field(name)
        yield field
        options = field.related_model._meta if field.is_relation and field.related_model else None


@dataclass(frozen=True)
class Criterion:
    """One criterion of an order."""

    path: str
    """Where the value is, from the model: ``level``, ``profile__level``."""

    descending: bool
    """Whether a higher value ranks better."""

    kind: Kind

    @classmethod
    def parse(cls, model: type[models.Model], text: str) -> Criterion:
        """``-level`` of ``model``. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        path = text.removeprefix("-")
        *relations, field = follow(model, path)
        for relation in relations:
            if not (relation.many_to_one or relation.one_to_one):
                raise FieldError(f"{path}: {relation.name} may lead to several rows")
        return cls(path, text.startswith("-"), kind_of(field))


@dataclass(frozen=True)
class Order:
    """The order of an index, best first. Holds one criterion today."""

    criteria: tuple[Criterion, ...]

    @classmethod
    def parse(cls, model: type[models.Model], order: Sequence[str]) -> Order:
        """Django's ordering syntax over ``model``. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        if isinstance(order, str) or not order:
            raise FieldError('expected a sequence of criteria such as ("-level",)')
        if not all(isinstance(text, str) for text in order):
            raise FieldError(f'expected text such as "-level", not {order!r}')
        if len(order) > 1:
            raise FieldError("several criteria are not supported yet")
        return cls(tuple(Criterion.parse(model, text) for text in order))

    @property
    def first(self) -> Criterion:
        """The criterion whose value is the score."""
        return self.criteria[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """The lookup path of every criterion, as ``values_list()`` takes them."""
        return tuple(criterion.path for criterion in self.criteria)

    @property
    def width(self) -> int:
        """How many tie bytes stand before every primary key (see :class:`~django_zrank.layout.Layout`)."""
        return 0

    @property
    def is_wide(self) -> bool:
        """Whether the first criterion may be an integer beyond ±2**53, which a score doesn't hold exactly."""
        return False

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """A function from the criteria's values to the score and the tie bytes, or ``Unrankable``."""
        encode = self.first.kind.encode
        return lambda values: (encode(values[0]), b"")

    def place_of(self, value: Any) -> tuple[Number, bytes]:
        """The score of a value of the first criterion, and its tie bytes where that is not exact."""
        return self.first.kind.encode(value), b""

    def decode(self, score: float, tie: bytes) -> tuple[Any, ...]:
        """The values of all criteria, each in its field's own type."""
        return (self.first.kind.decode(score),)
