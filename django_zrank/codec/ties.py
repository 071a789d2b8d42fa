"""Tie bytes: further criteria as bytes that sort as the values do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .kinds import Kind
from .units import HIGHEST, LOWEST, unpack

__all__ = ["TieCode"]


class TieCode:
    """A criterion as 8 bytes that ascend with the position, after one that places nulls if there may be any."""

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
