"""Rows that callers pass as members, and the columns that they have loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from .codec.fields import follow

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["sort_key_of"]


def sort_key_of(index: RankIndex, member: Any) -> tuple[float, bytes] | None:
    """The sort key that a member has in Redis, its score and its stored form, if its row is up to date.

    None unless ``member`` is an instance with all criteria loaded. Also None where it saves no round trip: without
    shards, and if scores begin in Redis, so that rows are often behind.
    """
    if len(index.parts) == 1 or index.rule or not isinstance(member, models.Model):
        return None
    fields = [[*follow(index.model, path)] for path in index.ordering.paths]
    encode = index.ordering.encode
    try:
        values = [_loaded(member, *path) for path in fields]
    except KeyError:
        return None
    try:
        score, tie = encode(values)
    except (ArithmeticError, AttributeError, TypeError, ValueError):  # an expression, or text
        return None
    return float(score), tie + index.to_text(member).encode()


def _loaded(row: Any, *fields: Any) -> Any:
    """The value of a column behind relations; None if one leads to no row. Raises ``KeyError`` if it isn't loaded."""
    *relations, column = fields
    for relation in relations:
        row = relation.get_cached_value(row)
        if row is None:
            return None
    if column.attname in row.get_deferred_fields():
        raise KeyError(column.attname)
    return getattr(row, column.attname)  # ``request.user`` is wrapped, and has no such item in its vars()
