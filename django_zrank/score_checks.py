"""Checks of what begins in Redis: scores that are written behind, and members that sleep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist, FieldError

from .index import RankIndex

__all__ = ["check_scores"]


def check_scores(index: RankIndex) -> Iterator[CheckMessage]:
    """The messages about ``write_behind`` and ``idle``."""
    cls = type(index)
    try:
        index.column  # noqa: B018
    except (FieldDoesNotExist, FieldError) as error:
        hint = (
            "Integers and decimals of fixed places can be written behind: a plain column of the model itself, as the "
            "only criterion."
        )
        yield Error(f"{cls.__name__}.write_behind: {error}.", hint=hint, obj=cls, id="zrank.E035")
    try:
        field: Any = index.seen_field
    except (FieldDoesNotExist, FieldError) as error:
        hint = 'A DateTimeField of the row, or of one that it leads to: idle = ("last_seen", timedelta(days=30)).'
        yield Error(f"{cls.__name__}.idle: {error}.", hint=hint, obj=cls, id="zrank.E038")
        return
    if field is None or field.db_index or field.unique:
        return
    indexes = field.model._meta.indexes
    if not any(one.fields and one.fields[0].lstrip("-") == field.name for one in indexes):
        yield Warning(
            f"{cls.__name__}.idle: no database index begins with {field.name}: to find members that fell "
            "asleep, all rows are read, every few seconds.",
            hint="Set db_index=True.",
            obj=cls,
            id="zrank.W011",
        )
