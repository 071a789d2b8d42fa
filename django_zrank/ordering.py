"""Criteria -> what a sorted set stores: a score, and bytes that break ties. Pure functions, no I/O.

A sorted set holds its scores as doubles, and orders members of one score by their bytes. Every value below maps
onto an integer of 64 bits, its *units*, in whose order the database has it: microseconds, days, the last place of
a decimal. The units of the first criterion are the score, as far as doubles hold them (±2**53), so that the
arithmetic of a band (my score minus ten) is exact, its ends included. What doubles don't hold, and the units of
all further criteria, go into *tie bytes*, which stand before the primary key and compare as the units do.

The last tie-break is the primary key as text, byte for byte: "10" stands before "9". All of it is read in reverse
where the first criterion descends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property
from struct import Struct
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import FieldError
from django.db import models
from django.db.models import F
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import OrderBy
from django.utils import timezone
from django.utils.dateparse import parse_duration

from .exceptions import Unrankable

__all__ = ["EXACT", "Criterion", "Kind", "Order", "follow", "kind_of", "value_field"]

EXACT: Final = 2**53
"""Every integer up to here, and none beyond, is a double of its own."""

_EXACT_LOW: Final = -EXACT
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1
_SPAN: Final = 2**64
"""More than lies between any two."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_DECIMALS: Final = Context(prec=60)
"""Precise enough for whatever fits, whatever the context of the caller's thread is."""

_NUL: Final = b"\0"
"""Before the 8 bytes of a member that needs some where others need none. No primary key begins so."""

_DOUBLE: Final = Struct(">d")
_INTEGER: Final = Struct(">q")

Number = int | float
Distance = int | float | Decimal | timedelta


def _beyond(units: int) -> Unrankable:
    return Unrankable(f"{units} lies beyond 64 bits (-2**63 to 2**63 - 1)")


def _inexact(units: int) -> Unrankable:
    return Unrankable(
        f"{units} lies beyond ±2**53, which a score holds exactly: as the first criterion, "
        "larger values need a BigIntegerField, or a DecimalField of more than 15 digits"
    )


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
    whole = number.is_finite() and -_SPAN <= number <= _SPAN and number == number.to_integral_value()
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
    """How one type of value becomes units and a score and back, and what a distance between two values is.

    This base is the kind of plain integers; the others override what differs.
    """

    is_wide: bool = False
    """Whether units may lie beyond ±2**53. Where they do, the score is the nearest double, and not exact."""

    lowest: Number = _LOWEST
    """The units of the lowest value that can be ranked and that Python has; of floats, the value."""

    highest: Number = _HIGHEST

    whole: Callable[[Any], int] = staticmethod(int)
    """A value as an integer of any size, in the order of values."""

    def units(self, value: Any) -> int:
        """``value`` as an integer of 64 bits. Raises :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.whole(value)
        if _LOWEST <= units <= _HIGHEST:
            return units
        raise _beyond(units)

    def value(self, units: int) -> Any:
        """The value that has these units."""
        return units

    def encode(self, value: Any) -> Number:
        """``value`` as a score. Raises :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.units(value)
        if _EXACT_LOW <= units <= EXACT:
            return units
        if self.is_wide:
            return float(units)
        raise _inexact(units)

    def decode(self, score: float) -> Any:
        """The value that was stored as ``score``: exactly, unless the kind is wide and it lies beyond ±2**53."""
        return self.value(int(score))

    def check(self, value: Any) -> Any:
        """``value``, if it is one of this kind that somebody may ask about. Raises ``ValueError``."""
        number = _number(value)
        if not number.is_finite() or number != number.to_integral_value():
            raise ValueError(f"expected a whole number, not {value!r}")
        if not -_SPAN <= number <= _SPAN:  # before 1e999999 is expanded
            raise ValueError(f"{value} lies beyond 64 bits")
        return value

    def distance(self, value: Any) -> Number:
        """A distance between two values, in units, at most 2**64. Raises ``ValueError``."""
        if type(value) is int and 0 <= value <= _SPAN:
            return value
        return self._whole(_number(value), Decimal(1))

    def parse_distance(self, text: str) -> Distance:
        """A distance out of a query string. Raises ``ValueError``."""
        return _parse_number(text)

    @staticmethod
    def _whole(value: Any, unit: Any) -> int:
        """Whole units in ``value``. Scores are whole units too, so rounding down loses no member."""
        if isinstance(value, timedelta):
            whole: int = value // unit
        elif not value.is_finite():
            raise ValueError(f"{value} is not finite")
        elif value >= _DECIMALS.multiply(_SPAN, unit):  # 1e999999 takes half a minute to expand
            whole = _SPAN
        else:
            whole = int(_DECIMALS.divide_int(value, unit)) if value >= 0 else -1
        if whole < 0:
            raise ValueError(f"{value} is negative")
        return min(whole, _SPAN)


class Big(Kind):
    """Integers of 64 bits."""

    is_wide = True


class Boolean(Kind):
    lowest, highest = 0, 1

    def value(self, units: int) -> bool:
        return bool(units)

    def check(self, value: Any) -> Any:
        return value if isinstance(value, bool) else super().check(value)


class Float(Kind):
    """Floats. The score is the number itself; its units are the bits of it, which say nothing but the order."""

    lowest, highest = -sys.float_info.max, sys.float_info.max

    def units(self, value: Any) -> int:
        (bits,) = _INTEGER.unpack(_DOUBLE.pack(self.encode(value)))
        # Of negative ones the larger number has the lower bits, all but the sign reversed: so they are.
        return int(bits if bits >= 0 else bits ^ _HIGHEST)

    def value(self, units: int) -> float:
        (number,) = _DOUBLE.unpack(_INTEGER.pack(units if units >= 0 else units ^ _HIGHEST))
        return number  # type: ignore[no-any-return]

    def encode(self, value: Any) -> float:
        number = float(value)
        if not math.isfinite(number):
            raise Unrankable(f"{number} has no place in an order")
        return number + 0.0  # -0.0 becomes 0.0: equal values, one score

    def decode(self, score: float) -> float:
        return score

    def check(self, value: Any) -> Any:
        if not _number(value).is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        return value

    def distance(self, value: Any) -> float:
        number = float(_number(value))
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if number < 0:
            raise ValueError(f"{value} is negative")
        return number


@dataclass(frozen=True)
class Fixed(Kind):
    """Decimals, in units of their last place: with two places 12.34 is stored as 1234."""

    places: int
    is_wide: bool = False

    @property
    def unit(self) -> Decimal:
        return Decimal(1).scaleb(-self.places, _DECIMALS)

    def whole(self, value: Any) -> int:
        number = Decimal(value)
        if not number.is_finite():
            raise Unrankable(f"{number} has no place in an order")
        if number.adjusted() + self.places > 18 and number:  # 1e999999 as an integer takes half a minute
            raise Unrankable(f"{number:.3g} lies beyond 2**63 in its last place")
        return int(number.scaleb(self.places, _DECIMALS).to_integral_value())

    def value(self, units: int) -> Decimal:
        return Decimal(units).scaleb(-self.places, _DECIMALS)

    def check(self, value: Any) -> Decimal:
        number = _number(value)
        if not number.is_finite():
            raise ValueError(f"expected a finite number, not {value!r}")
        if number.adjusted() + self.places <= 18 and self.value(self.units(number)) != number:
            raise ValueError(f"expected a number of {self.places} decimal places, not {value!r}")
        return number

    def distance(self, value: Any) -> int:
        return self._whole(_number(value), self.unit)


class Day(Kind):
    """Dates, as days since 1970-01-01. A distance is a ``timedelta`` or a number of days."""

    lowest, highest = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY

    def whole(self, value: date) -> int:
        return value.toordinal() - _EPOCH_DAY

    def value(self, units: int) -> date:
        return date.fromordinal(units + _EPOCH_DAY)

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
            return _parse_number(text)
        except ValueError:
            return _parse_span(text)


class Moment(Kind):
    """Datetimes, as microseconds since 1970 in UTC. Doubles hold them from the year 1684 to 2255."""

    is_wide = True
    lowest: Number = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    highest: Number = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

    def whole(self, value: datetime) -> int:
        if timezone.is_naive(value):
            value = value.replace(tzinfo=UTC)
        return (value - _EPOCH) // _MICROSECOND

    def value(self, units: int) -> datetime:
        moment = _EPOCH + timedelta(microseconds=units)
        return moment if settings.USE_TZ else moment.replace(tzinfo=None)

    def check(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise ValueError(f"expected a datetime, not {value!r}")
        return value

    def distance(self, value: Any) -> int:
        return self._whole(_span(value), _MICROSECOND)

    def parse_distance(self, text: str) -> Distance:
        return _parse_span(text)


class Span(Moment):
    """Durations, as microseconds."""

    lowest: Number = _LOWEST
    highest: Number = _HIGHEST

    def whole(self, value: timedelta) -> int:  # type: ignore[override]
        return value // _MICROSECOND

    def value(self, units: int) -> timedelta:  # type: ignore[override]
        return timedelta(microseconds=units)

    def check(self, value: Any) -> Any:
        return _span(value)


def kind_of(field: models.Field[Any, Any]) -> Kind:
    """The kind of a model field's values. Raises ``FieldError`` where they can't be ranked."""
    match field:
        case models.GeneratedField():
            return kind_of(field.output_field)  # type: ignore[arg-type]
        case models.ForeignObject():
            return kind_of(field.target_field)
        case models.BooleanField():
            return Boolean()
        case models.DecimalField():
            digits = field.max_digits
            return Fixed(field.decimal_places or 0, is_wide=digits is None or 10**digits > EXACT)
        case models.DateTimeField():  # before DateField, its base class
            return Moment()
        case models.DateField():
            return Day()
        case models.DurationField():
            return Span()
        case models.FloatField():
            return Float()
        case models.BigIntegerField():
            return Big()
        case models.IntegerField():
            return Kind()
        case models.CharField() | models.TextField():
            raise FieldError(f"{field} is text, which can't be ranked; the primary key breaks ties as it is")
    raise FieldError(f"{field} is a {type(field).__name__}, which can't be ranked")


def value_field(field: Any) -> Any:
    """The field that tells what values are in a column: of a relation, the key that it leads to; of a generated
    field, what it is made of."""
    while field.is_relation:
        field = getattr(field, "target_field", None) or field.related_model._meta.pk
    return field.output_field if isinstance(field, models.GeneratedField) else field


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

    nullable: bool = False
    """Whether there may be none: the column's word, or that of a relation on the way which may be missing."""

    nulls_first: bool = False
    """Whether those that have none rank before those that have one. Never so of a first criterion: a row
    without it is not ranked."""

    @classmethod
    def parse(cls, model: type[models.Model], declared: str | F | OrderBy) -> Criterion:
        """``-level`` of ``model``, or ``F("level").desc(nulls_first=True)``.

        Raises ``FieldDoesNotExist`` or ``FieldError``.
        """
        path, descending, nulls_first = _said(declared)
        *relations, field = follow(model, path)
        for relation in relations:
            if not (relation.many_to_one or relation.one_to_one):
                raise FieldError(f"{path}: {relation.name} may lead to several rows")
        last = path.rpartition(LOOKUP_SEP)[2]
        column = getattr(field, "attname", field.name)
        if field.is_relation and last not in ("pk", column if column != field.name else "pk"):
            hint = f"; its column is {column}" if column != field.name else ""
            raise FieldError(f"{path} is a relation, which can't be ranked{hint}")
        nullable = any(map(_may_be_missing, relations)) or bool(field.null)
        return cls(path, descending, kind_of(field), nullable, nulls_first)


def _said(declared: Any) -> tuple[str, bool, bool]:
    """What a criterion says: the path, whether it descends, whether nulls are first."""
    if isinstance(declared, str):
        return declared.removeprefix("-"), declared.startswith("-"), False
    if type(declared) is F:
        return declared.name, False, False  # type: ignore[attr-defined]
    if isinstance(declared, OrderBy) and type(declared.expression) is F:
        path: str = declared.expression.name  # type: ignore[attr-defined]
        return path, declared.descending, bool(declared.nulls_first)
    raise FieldError(
        f'expected text such as "-level", or F("level").desc(nulls_first=True), not {declared!r}'
    )


def _may_be_missing(relation: Any) -> bool:
    """Whether a row may have nobody at the other end. Nothing obliges the reverse of a one-to-one."""
    return bool(relation.null) if relation.concrete else True


@dataclass(frozen=True)
class Order:
    """The order of an index, best first."""

    criteria: tuple[Criterion, ...]

    @classmethod
    def parse(cls, model: type[models.Model], order: Sequence[str | F | OrderBy]) -> Order:
        """Django's ordering syntax over ``model``. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        if isinstance(order, str) or not isinstance(order, Sequence) or not order:
            raise FieldError('expected a sequence of criteria such as ("-level",)')
        criteria = tuple(Criterion.parse(model, declared) for declared in order)
        if criteria[0].nulls_first:
            raise FieldError(f"{criteria[0].path}: nulls can't be first, for a row without it is not ranked")
        columns = [tuple(field.name for field in follow(model, criterion.path)) for criterion in criteria]
        for at, column in enumerate(columns):
            if column in columns[:at]:
                raise FieldError(f"{criteria[at].path} is named twice")
        return cls(criteria)

    @property
    def first(self) -> Criterion:
        """The criterion whose value is the score."""
        return self.criteria[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """The lookup path of every criterion, as ``values_list()`` takes them."""
        return tuple(criterion.path for criterion in self.criteria)

    @property
    def is_wide(self) -> bool:
        """Whether the first criterion may be an integer beyond ±2**53, which a score doesn't hold exactly."""
        return self.first.kind.is_wide

    @cached_property
    def width(self) -> int:
        """How many tie bytes stand before every primary key (see :class:`~django_zrank.layout.Layout`): 8 for
        each further criterion, one more where it is nullable, and 8 for the first if it is wide. None if there is
        no further criterion."""
        if len(self.criteria) == 1:
            return 0
        return 8 * self.is_wide + sum(8 + criterion.nullable for criterion in self.criteria[1:])

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """A function from the criteria's values to the score and the tie bytes, or ``Unrankable``."""
        kind, codes = self.first.kind, [code.encode for code in self._codes]
        if not codes:
            return _encoder_of_one(kind)
        first = _encoder_of_first(kind)

        def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
            try:
                score, tie = first(values[0])
                for code, value in zip(codes, values[1:], strict=True):
                    tie += code(value)
            except (AttributeError, TypeError) as error:
                if None in values:
                    raise Unrankable(f"there is a null where the model says none: {values!r}") from error
                raise
            return score, tie

        return encode

    def decode(self, score: float, tie: bytes) -> tuple[Any, ...]:
        """The values of all criteria, each in its field's own type."""
        kind = self.first.kind
        if not self.width:
            return (kind.value(_unpack(tie[1:])) if tie else kind.decode(score),)
        at = 0
        if kind.is_wide:
            values, at = [kind.value(_unpack(tie[:8]))], 8
        else:
            values = [kind.decode(score)]
        for code in self._codes:
            values.append(code.decode(tie[at : at + code.width]))
            at += code.width
        return tuple(values)

    def place_of(self, value: Any) -> tuple[float, bytes]:
        """Where a value of the first criterion lies: its score, and the bytes with which the tie bytes of all members
        begin that have it and no others of the same score do; none where the score tells.

        Raises ``ValueError`` for what is no value of the criterion, or lies beyond 64 bits.
        """
        kind = self.first.kind
        try:
            value = kind.check(value)
            if isinstance(kind, Float):
                return kind.encode(value), b""
            units = kind.units(value)
            if not kind.is_wide or _EXACT_LOW < units < EXACT:
                return float(units), b""
            return float(units), _pack(units) if self.width else _NUL + _pack(units)
        except (Unrankable, ValueError) as error:
            raise ValueError(f"{self.first.path}: {error}") from None

    def ascending(self, expressions: Iterable[Any] | None = None) -> tuple[OrderBy, ...]:
        """The criteria as ``order_by()`` takes them, in the order of positions: the lowest score first.

        ``expressions``: where their values are; by default at their paths. Nulls are placed only where there may be
        some: an index can't help a database that is told where.
        """
        reverse = self.first.descending
        if expressions is None:
            expressions = map(F, self.paths)
        return tuple(
            OrderBy(
                expression,
                descending=criterion.descending != reverse,
                nulls_first=True if nullable and criterion.nulls_first != reverse else None,
                nulls_last=True if nullable and criterion.nulls_first == reverse else None,
            )
            for criterion, expression in zip(self.criteria, expressions, strict=True)
            for nullable in (criterion.nullable and criterion is not self.first,)
        )

    @cached_property
    def _codes(self) -> tuple[_Code, ...]:
        """What the further criteria are in tie bytes."""
        reverse = self.first.descending
        return tuple(
            _Code(
                criterion.kind,
                complemented=criterion.descending != reverse,
                nullable=criterion.nullable,
                nulls_low=criterion.nulls_first != reverse,
            )
            for criterion in self.criteria[1:]
        )


class _Code:
    """A criterion as bytes that ascend with the position: 8, behind one that places nulls where there may be
    some."""

    def __init__(
        self, kind: Kind, *, complemented: bool, nullable: bool = False, nulls_low: bool = False
    ) -> None:
        units, value = kind.units, kind.value
        self.width = 8 + nullable

        # One function for each case: they run once for every member of an index.
        self.encode: Callable[[Any], bytes]
        self.decode: Callable[[bytes], Any]
        if complemented:
            self.encode = lambda given: (_HIGHEST - units(given)).to_bytes(8, "big")
            self.decode = lambda code: value(_HIGHEST - int.from_bytes(code, "big"))
        else:
            self.encode = lambda given: (units(given) - _LOWEST).to_bytes(8, "big")
            self.decode = lambda code: value(_unpack(code))
        if nullable:
            encode, decode = self.encode, self.decode
            null = (b"\0" if nulls_low else b"\2") + bytes(8)
            self.encode = lambda given: null if given is None else b"\1" + encode(given)
            self.decode = lambda code: None if code == null else decode(code[1:])


def _pack(units: int) -> bytes:
    """An integer of 64 bits as bytes that compare as it does."""
    return (units - _LOWEST).to_bytes(8, "big")


def _unpack(code: bytes) -> int:
    return int.from_bytes(code, "big") + _LOWEST


def _encoder_of_one(kind: Kind) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
    """The encoder of an order that has no other criterion: no call more than it needs, for it runs a million times."""
    whole, score_of = kind.whole, kind.encode
    if isinstance(kind, Float):
        return lambda values: (score_of(values[0]), b"")
    if isinstance(kind, Day):  # the calendar ends before a double does
        return lambda values: (whole(values[0]), b"")

    def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
        units = whole(values[0])
        if _EXACT_LOW <= units <= EXACT:
            return units, b""
        raise _inexact(units)

    def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
        # 2**53 is a double of its own, but its neighbour has the same: among those with tie bytes it needs some.
        units = whole(values[0])
        if _EXACT_LOW < units < EXACT:
            return units, b""
        if _LOWEST <= units <= _HIGHEST:
            return float(units), _NUL + _pack(units)
        raise _beyond(units)

    return encode_wide if kind.is_wide else encode


def _encoder_of_first(kind: Kind) -> Callable[[Any], tuple[Number, bytes]]:
    """A function from the first of several criteria to the score and where the tie bytes begin."""
    units_of, score_of = kind.units, kind.encode

    def encode(value: Any) -> tuple[Number, bytes]:
        return score_of(value), b""

    def encode_wide(value: Any) -> tuple[Number, bytes]:
        units = units_of(value)
        return (units if _EXACT_LOW < units < EXACT else float(units)), _pack(units)

    return encode_wide if kind.is_wide else encode
