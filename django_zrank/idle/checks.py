"""System checks of ``idle``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks import error, path_problem, warning
from .declaration import IdleIndex

__all__ = ["check_idle"]


def check_idle(index: IdleIndex) -> Iterator[CheckMessage]:
    try:
        field: Any = index.seen_field
    except (FieldDoesNotExist, FieldError) as raised:
        hint = 'A DateTimeField of the row, or of one that it leads to: idle = ("last_seen", timedelta(days=30)).'
        yield error(
            type(index), f".idle: {path_problem(index, raised, index.get_idle())}", hint, "zrank.E038"
        )
        return
    if field is None or field.db_index or field.unique:
        return
    indexes = field.model._meta.indexes
    if not any(one.fields and one.fields[0].lstrip("-") == field.name for one in indexes):
        message = (
            f".idle: no database index begins with {field.name}: to find members that fell asleep, all rows are read "
            "every few seconds."
        )
        yield warning(type(index), message, "Set db_index=True.", "zrank.W011")
