"""Units, the 64-bit integers that values become, and the parsing of numbers and durations."""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

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
    "Distance",
    "Number",
    "beyond",
    "is_queryable",
    "pack",
    "parse_number",
    "parse_timespan",
    "plain_number",
    "timespan",
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
