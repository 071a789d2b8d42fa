"""Units: the 64-bit integers that values become, which distances between values are measured in."""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal
from typing import Any, Final

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


def is_queryable(key: Any, vendor: str) -> bool:
    """Return True unless ``key`` is an integer that a query can't name: one beyond 64 bits. MySQL's may be unsigned."""
    return not isinstance(key, int) or LOWEST <= key <= (SPAN - 1 if vendor == "mysql" else HIGHEST)
