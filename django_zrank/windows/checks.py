"""System checks of ``within``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..capture.watched_tables import path_to
from ..checks import error, warning
from ..codec.fields import follow
from ..declaration import Index
from .window import columns

__all__ = ["check_windows"]

_HINT = (
    "Compare a column, or Max or Min of one, outside of subqueries: Q(wins__at__within=timedelta(days=7))."
)


def check_windows(index: Index) -> Iterator[CheckMessage]:
    try:
        found, hidden = columns(index)
    except (FieldDoesNotExist, FieldError):  # of another part, which reports it
        return
    if hidden or not all(column for _, column, _ in found):
        where = "is in a subquery" if hidden else "compares an expression"
        message = f".get_queryset(): within {where}: members whose time has passed can't be found."
        yield error(type(index), message, _HINT, "zrank.E051")
    for query, column, _ in found:
        if column and _is_slow(follow(query.model, path_to(query, column))):
            message = (
                f": no database index begins with {column.target}: to find rows whose time has passed, all are read "
                "every second."
            )
            yield warning(type(index), message, "Set db_index=True.", "zrank.W011")


def _is_slow(fields: Sequence[Any]) -> bool:
    """Return True if the last of the fields on a path has no index. One that members lead to needs none: its table is
    shorter, and perhaps of another app, such as ``user__last_login``."""
    *relations, field = fields
    if relations and not any(one.one_to_many or one.many_to_many for one in relations):
        return False
    first = [one.fields[0].lstrip("-") for one in field.model._meta.indexes if one.fields]
    return not (field.db_index or field.unique or field.name in first)
