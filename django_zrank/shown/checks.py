"""System checks of ``shown``."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks import error, path_problem
from .declaration import ShowingIndex

__all__ = ["check_shown"]


def check_shown(index: ShowingIndex) -> Iterator[CheckMessage]:
    try:
        _ = index.showing
    except (FieldDoesNotExist, FieldError) as raised:
        hint = (
            "Columns of the row, or of one that it leads to, in a tuple: "
            'shown = ("name", "avatar", "guild__name").'
        )
        yield error(
            type(index), f".shown: {path_problem(index, raised, index.get_shown())}", hint, "zrank.E050"
        )
