"""Tie bytes: further criteria, and what a double does not hold, as bytes that compare as the values do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .kinds import Float, Kind
from .times import Day
from .units import EXACT, EXACT_LOW, HIGHEST, LOWEST, Number, beyond, inexact

__all__ = ["NUL", "TieCode", "encoder_of_first", "encoder_of_one", "pack", "unpack"]

NUL: Final = b"\0"
"""Before the 8 bytes of a member that needs some where others need none. No primary key begins so."""


class TieCode:
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
            self.encode = lambda given: (HIGHEST - units(given)).to_bytes(8, "big")
            self.decode = lambda code: value(HIGHEST - int.from_bytes(code, "big"))
        else:
            self.encode = lambda given: (units(given) - LOWEST).to_bytes(8, "big")
            self.decode = lambda code: value(unpack(code))
        if nullable:
            encode, decode = self.encode, self.decode
            null = (b"\0" if nulls_low else b"\2") + bytes(8)
            self.encode = lambda given: null if given is None else b"\1" + encode(given)
            self.decode = lambda code: None if code == null else decode(code[1:])


def pack(units: int) -> bytes:
    """An integer of 64 bits as bytes that compare as it does."""
    return (units - LOWEST).to_bytes(8, "big")


def unpack(code: bytes) -> int:
    return int.from_bytes(code, "big") + LOWEST


def encoder_of_one(kind: Kind) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
    """The encoder of an order that has no other criterion: no call more than it needs, for it runs a million times."""
    whole, score_of = kind.whole, kind.encode
    if isinstance(kind, Float):
        return lambda values: (score_of(values[0]), b"")
    if isinstance(kind, Day):  # the calendar ends before a double does
        return lambda values: (whole(values[0]), b"")

    def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
        units = whole(values[0])
        if EXACT_LOW <= units <= EXACT:
            return units, b""
        raise inexact(units)

    def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
        # 2**53 is a double of its own, but its neighbour has the same: among those with tie bytes it needs some.
        units = whole(values[0])
        if EXACT_LOW < units < EXACT:
            return units, b""
        if LOWEST <= units <= HIGHEST:
            return float(units), NUL + pack(units)
        raise beyond(units)

    return encode_wide if kind.is_wide else encode


def encoder_of_first(kind: Kind) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
    """A function from several criteria to the score and where the tie bytes begin, both of the first one."""
    units_of = kind.units

    def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
        units = units_of(values[0])
        return (units if EXACT_LOW < units < EXACT else float(units)), pack(units)

    return encode_wide if kind.is_wide else encoder_of_one(kind)
