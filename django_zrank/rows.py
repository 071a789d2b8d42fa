"""Rows as callers give them, and what these tell without a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from .codec.fields import follow

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["place_of"]


def place_of(index: RankIndex, member: Any) -> tuple[float, bytes] | None:
    """The score that a row has, and how the member is stored then: its place, if Redis has it there.

    None for what is no row, or has not loaded all criteria; also without shards, which are what is asked in fewer round
    trips by it, and where scores begin in Redis, so that rows are often behind.
    """
    if len(index.parts) == 1 or index.rule or not isinstance(member, models.Model):
        return None
    fields = [[*follow(index.model, path)] for path in index.ordering.paths]
    encode = index.ordering.encode
    try:
        values = [_loaded(member, *path) for path in fields]
    except LookupError:
        return None
    try:
        score, tie = encode(values)
    except (ArithmeticError, AttributeError, TypeError, ValueError):  # an expression, or text
        return None
    return float(score), tie + index.to_text(member).encode()


def _loaded(row: Any, field: Any, *others: Any) -> Any:
    """The value of a column behind relations, None where one leads nowhere. Raises ``LookupError`` where it takes a
    query."""
    if not others:
        return vars(row)[field.attname]
    if not field.is_cached(row):
        raise LookupError(field.name)
    other = field.get_cached_value(row)
    return None if other is None else _loaded(other, *others)
