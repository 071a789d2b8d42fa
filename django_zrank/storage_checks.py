"""Checks of how an index is kept: scores that are written behind, idle members, shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from .hooks import error, warning
from .index import RankIndex
from .shards import name_of

__all__ = ["check_storage"]

_MOST: Final = 1024
"""The most shards."""

_LONGEST: Final = 255
"""The longest name of a shard, in characters."""


def check_storage(index: RankIndex) -> Iterator[CheckMessage]:
    """The messages about ``write_behind``, ``idle`` and ``shards``."""
    cls = type(index)
    try:
        index.column  # noqa: B018
    except (FieldDoesNotExist, FieldError) as raised:
        hint = (
            "Integers and decimals of fixed places can be written behind: a plain column of the model itself, as the "
            "only criterion."
        )
        yield error(cls, f".write_behind: {raised}.", hint, "zrank.E035")
    try:
        yield from _check_seen(index, index.seen_field)
    except (FieldDoesNotExist, FieldError) as raised:
        hint = 'A DateTimeField of the row, or of one that it leads to: idle = ("last_seen", timedelta(days=30)).'
        yield error(cls, f".idle: {raised}.", hint, "zrank.E038")
    count = index.get_shards()
    if type(count) is not int or not 1 <= count <= _MOST:
        hint = f"A whole number from 1 to {_MOST:,}. A read asks all of them: as few as you will have servers do."
        yield error(cls, f".shards is {count!r}.", hint, "zrank.E039")
    elif count > 1 and len(longest := max((part.name for part in index.parts), key=len)) > _LONGEST:
        hint = f"Names of shards, such as {name_of('player', 3, 16)!r}, have at most {_LONGEST} characters."
        yield error(cls, f": the name {longest!r} of a shard is too long.", hint, "zrank.E040")


def _check_seen(index: RankIndex, field: Any) -> Iterator[CheckMessage]:
    if field is None or field.db_index or field.unique:
        return
    indexes = field.model._meta.indexes
    if not any(one.fields and one.fields[0].lstrip("-") == field.name for one in indexes):
        message = (
            f".idle: no database index begins with {field.name}: to find members that fell asleep, all rows are read, "
            "every few seconds."
        )
        yield warning(type(index), message, "Set db_index=True.", "zrank.W011")
