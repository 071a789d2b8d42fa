"""Numbers and booleans."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from struct import Struct
from typing import Any, Final

from django.db import models
from django.db.models import F
from django.db.models.functions import Round

from ...exceptions import Unrankable
from ..spelling import REAL, WHOLE
from ..units import DECIMALS, EXACT, EXACT_LOW, HIGHEST, LOWEST, SPAN, Distance, Number, whole_units
from .kind import Kind, Schema

__all__ = ["Big", "Boolean", "Fixed", "Float", "Integer", "parse_number", "plain_distance"]

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
    pattern = REAL

    @property
    def schema(self) -> Schema:
        return {"type": "number"}

    def parse_distance(self, text: str) -> Distance:
        return parse_number(text)


class Integer(_Number):
    """Integers of up to 32 bits: SQLite's columns hold more than they say."""

    fields = (models.IntegerField,)
    called = "integer"
    is_facet = is_key = True
    pattern = WHOLE

    @property
    def declared(self) -> tuple[str, Mapping[str, Any]]:
        return "Kind" if type(self) is Integer else type(
            self
        ).__name__, {}  # its name when the first were built

    whole = staticmethod(int)
    decode = staticmethod(int)  # type: ignore[assignment]

    def limits(self, *, as_score: bool) -> tuple[Number, Number] | None:
        return (EXACT_LOW, EXACT) if as_score else None

    check = staticmethod(whole_number)
    distance = staticmethod(plain_distance)

    @property
    def schema(self) -> Schema:
        return {"type": "integer"}

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

    def limits(self, *, as_score: bool) -> None:
        return None


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

    def distance(self, value: Any) -> float:
        number = float(plain_number(value))
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if number < 0:
            raise ValueError(f"{value} is negative")
        return number


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
    def declared(self) -> tuple[str, Mapping[str, Any]]:
        return "Fixed", {"places": self.places, "is_wide": self.is_wide}

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
        return F(path)


_BOOLEANS: Final = {
    "true": True, "t": True, "1": True,
    "false": False, "f": False, "0": False,
}  # fmt: skip


class Boolean(_Number):
    fields = (models.BooleanField,)
    called = "bool"
    is_facet = is_key = True
    pattern = "(?i:true|false)"
    lowest, highest = 0, 1
    whole = staticmethod(int)
    decode = staticmethod(bool)  # type: ignore[assignment]

    def value(self, units: int) -> bool:
        return bool(units)

    def check(self, value: Any) -> Any:
        return value if isinstance(value, bool) else whole_number(value)

    distance = staticmethod(plain_distance)

    @property
    def schema(self) -> Schema:
        return {"type": "boolean"}

    def spelled(self, text: str) -> str:
        return super().spelled(text).title()

    parse_input = Kind.convert_input

    @staticmethod
    def parse(value: Any) -> bool:
        try:
            return _BOOLEANS[str(value).lower()]
        except KeyError:
            raise ValueError(f"{value!r} is neither true nor false") from None
