"""A set difference in memory that doesn't grow."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

__all__ = ["MultisetSketch"]


class MultisetSketch:
    """A multiset sketch: tells in 8 MB if two streams held the same members.

    A hash of each member is added to one of a million cells as it comes in one stream, and subtracted as it comes
    in the other. A cell that isn't zero at the end takes a closer look. A member that came in one stream only
    leaves its cell uneven, unless others of that cell make up for it exactly: one chance in 2**64.
    """

    _CELLS: Final = 1 << 20
    _WRAP: Final = (1 << 64) - 1

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * self._CELLS))

    def add(self, members: Iterable[bytes], sign: int = 1) -> None:
        cells, last, wrap = self._cells, self._CELLS - 1, self._WRAP
        for member in members:
            number = hash(member)
            # The hash of an empty text is 0, and would weigh nothing.
            cells[number & last] = (cells[number & last] + sign * (number | 1)) & wrap

    def subtract(self, members: Iterable[bytes]) -> None:
        self.add(members, -1)

    def uneven(self, members: Iterable[bytes]) -> list[bytes]:
        """Those of ``members`` whose cell isn't zero."""
        cells, last = self._cells, self._CELLS - 1
        return [member for member in members if cells[hash(member) & last]]

    def __bool__(self) -> bool:
        """Return True if any cell isn't zero."""
        return any(self._cells)
