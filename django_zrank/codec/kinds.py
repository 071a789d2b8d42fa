"""Kinds of values: numbers, with their units and scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from struct import Struct
from typing import Any, Final

from ..exceptions import Unrankable
from .units import (
    DECIMALS,
    EXACT,
    EXACT_LOW,
    HIGHEST,
    LOWEST,
    NUL,
    SPAN,
    Distance,
    Number,
    beyond,
    pack,
    parse_number,
    plain_number,
)

__all__ = ["Big", "Boolean", "Bounded", "Fixed", "Float", "Kind"]

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
