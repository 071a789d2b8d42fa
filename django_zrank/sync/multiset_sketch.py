"""A difference of multisets in memory that doesn't grow."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

__all__ = ["MultisetSketch"]


class MultisetSketch:
    """A multiset sketch: tells in 8 MB where two streams of records differ.

    Each record has a weight, which is a keyed hash of all that it says, and belongs to a group. The weight is added to
    one of a million cells, that of the group, as the record comes in one stream, and subtracted as it comes in the
    other. A group whose cell isn't zero in the end takes a closer look.
    """

    _CELLS: Final = 1 << 20
    _WRAP: Final = (1 << 64) - 1

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * self._CELLS))

    def add(self, groups: Iterable[bytes], weights: Iterable[int], factor: int = 1) -> None:
        """Add the weight of each record, times ``factor``, to its group."""
        cells, last, wrap = self._cells, self._CELLS - 1, self._WRAP
        for number, weight in zip(map(hash, groups), weights, strict=True):
            cell = number & last
            cells[cell] = (cells[cell] + weight * factor) & wrap

    def is_uneven(self, group: bytes) -> bool:
        """Return True if the cell of a group isn't zero."""
        return self._cells[hash(group) & (self._CELLS - 1)] != 0

    def __bool__(self) -> bool:
        """Return True if any cell isn't zero."""
        return any(self._cells)
