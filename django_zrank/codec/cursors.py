"""Cursors: the sort key of a member as text, to continue a page from there. No I/O."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import Any, Final

from ..declaration import Index
from .entry import Entry

__all__ = ["decode_cursor", "encode_cursor", "sort_key_at"]

_SCORE: Final = Struct(">d")

_LONGEST: Final = 4096
"""Characters. Servers take URLs that are about twice as long."""


def sort_key_at(index: Index, given: Any) -> tuple[float, bytes]:
    """Return the sort key with which an entry was read, or that of a cursor. Raises ``ValueError``."""
    if isinstance(given, str):
        return decode_cursor(index, given)
    try:
        if not isinstance(given, Entry) or len(given.values) != len(index.ordering.criteria):
            raise TypeError
        score, tie = index.ordering.encode(given.values)
        return float(score), tie + index.to_text(given.pk).encode()
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        raise ValueError(
            f"expected an entry of the index {index.name!r} or a cursor, not {given!r}"
        ) from None


def encode_cursor(score: float, stored: bytes) -> str:
    """Return the cursor of a sort key."""
    return urlsafe_b64encode(_SCORE.pack(score) + stored).decode().rstrip("=")


def decode_cursor(index: Index, cursor: str) -> tuple[float, bytes]:
    """Return the sort key of a cursor, which may come from anybody. Raises ``ValueError`` unless a member of the index
    could have it."""
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        (score,), stored = _SCORE.unpack(text[: _SCORE.size]), text[_SCORE.size :]
        tie, member = index.layout.split(stored)
        values = index.ordering.decode(score, tie)
        entry = Entry(index.parse_pk(member.decode()), values[0], None, values)
        if sort_key_at(index, entry) != (score, stored) or encode_cursor(score, stored) != cursor:
            raise ValueError
    except (ArithmeticError, IndexError, StructError, TypeError, ValueError):
        raise ValueError(f"expected a cursor of the index {index.name!r}, not {cursor[:100]!r}") from None
    return score, stored
