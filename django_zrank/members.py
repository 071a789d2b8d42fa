"""Members as callers give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

__all__ = ["batched", "halves", "members_of"]

Item = TypeVar("Item")


def members_of(parameter: str, given: Any) -> Iterable[Any]:
    """Several members. Raises ``ValueError`` for what is none or one, as a bare string, naming the ``parameter``."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(f"{parameter}: expected members, not {given!r}")
    return given


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of ``size`` items."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def halves(wanted: int, better: Iterable[Item], worse: Iterable[Item]) -> list[Item]:
    """Half of each side, with the odd one from the better; what one side lacks the other gives. No more is read of
    either than is taken."""
    first, second = iter(better), iter(worse)
    chosen = list(islice(first, (wanted + 1) // 2))
    chosen += islice(second, wanted - len(chosen))
    chosen += islice(first, wanted - len(chosen))
    return chosen
