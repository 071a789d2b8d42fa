"""Stored members and their scores, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .layout import Layout
from .order import Order

__all__ = ["Entry", "Ranked", "decoder"]

Ranked = tuple[bytes, float, int | None]
"""A stored member, its score and its rank."""


class Entry(NamedTuple):
    """One member of a ranking."""

    pk: Any
    """The primary key, in the model's own type."""

    score: Any
    """The value of the first criterion, in the field's own type."""

    rank: int | None
    """1 is best; of members that are equal in every criterion, as ``ranking_method`` says. None where nothing tells
    it at once: recommendations among those that pass several filters which no facet covers together."""

    values: tuple[Any, ...]
    """The values of all criteria, each in its field's own type."""


def decoder(
    order: Order, layout: Layout, to_pk: Callable[[bytes], Any]
) -> Callable[[Iterable[Ranked]], list[Entry]]:
    """Return a function that decodes ranked members; ``to_pk`` decodes their primary keys."""
    split, decode = layout.split, order.first.kind.decode
    new: Callable[..., Entry] = tuple.__new__  # half the time of Entry(…), and there may be hundreds

    def plain(ranked: Iterable[Ranked]) -> list[Entry]:
        return [
            new(Entry, (to_pk(stored), value, rank, (value,)))
            for stored, score, rank in ranked
            for value in (decode(score),)
        ]

    def tied(ranked: Iterable[Ranked]) -> list[Entry]:
        entries = []
        for stored, score, rank in ranked:
            tie, member = split(stored)
            values = order.decode(score, tie)
            entries.append(Entry(to_pk(member), values[0], rank, values))
        return entries

    return tied if order.width or order.is_wide else plain
