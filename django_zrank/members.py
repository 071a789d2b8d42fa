"""Members as callers give them: one or several, rows or keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import models

from .declaration import Index

__all__ = ["members_of", "named", "values_of"]


def members_of(parameter: str, given: Any) -> Iterable[Any]:
    """Validate several members. Raises ``ValueError``, naming the ``parameter``, for a single one such as a string."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(f"{parameter}: expected members, not {given!r}")
    return given


def named(parameter: str, given: Sequence[Any]) -> Iterable[Any]:
    """The members that a call names, as several arguments or as one iterable. Raises ``ValueError`` for iterables among
    several arguments."""
    if len(given) == 1 and _is_several(given[0]):
        return given[0]  # type: ignore[no-any-return]
    for one in given:
        if _is_several(one):
            raise ValueError(
                f"{parameter}: expected several members or one iterable of them, not {one!r} among others"
            )
    return given


def _is_several(given: Any) -> bool:
    return hasattr(given, "__iter__") and not isinstance(given, (str, bytes, models.Model))


def values_of(index: Index, row: models.Model) -> list[Any]:
    """The values of all criteria of a row. Raises ``KeyError`` for one that isn't loaded."""
    return [_loaded(row, *index.follow(path)) for path in index.ordering.paths]


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
