"""Members as callers give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["batched", "halves", "members_of", "rows_of"]

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


def rows_of(index: RankIndex, members: Sequence[Any]) -> list[Any]:
    """The row of each member, instances as they are and others by one query; None where there is none."""
    pks = {at: index.parse_pk(one) for at, one in enumerate(members) if not isinstance(one, models.Model)}
    if not pks:
        return list(members)
    rows = {row.pk: row for row in models.QuerySet[Any](index.model).filter(pk__in=pks.values())}
    return [rows.get(pks[at]) if at in pks else one for at, one in enumerate(members)]
