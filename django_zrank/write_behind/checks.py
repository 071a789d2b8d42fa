"""System checks of ``write_behind``."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks import error, path_problem
from .declaration import WriteBehindIndex

__all__ = ["check_write_behind"]


def check_write_behind(index: WriteBehindIndex) -> Iterator[CheckMessage]:
    try:
        index.column  # noqa: B018 - parsed
    except (FieldDoesNotExist, FieldError) as raised:
        hint = (
            "Integers and decimals of fixed places can be written behind: a plain column of the model itself, as the "
            "only criterion."
        )
        yield error(
            type(index),
            f".write_behind: {path_problem(index, raised, index.ordering.paths)}",
            hint,
            "zrank.E035",
        )
