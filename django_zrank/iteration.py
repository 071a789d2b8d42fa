"""Items of any kind, in turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

__all__ = ["batched", "halves"]

Item = TypeVar("Item")


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of ``size`` items."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def halves(wanted: int, better: Iterable[Item], worse: Iterable[Item]) -> list[Item]:
    """Take half from each side, the odd one from the better; if one has too few, more from the other. Reads no more
    items than it takes."""
    first, second = iter(better), iter(worse)
    chosen = list(islice(first, (wanted + 1) // 2))
    chosen += islice(second, wanted - len(chosen))
    chosen += islice(first, wanted - len(chosen))
    return chosen
