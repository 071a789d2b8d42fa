"""System checks of ``idle``."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks import error, path_problem
from .declaration import IdleIndex

__all__ = ["check_idle"]


def check_idle(index: IdleIndex) -> Iterator[CheckMessage]:
    try:
        index.awake  # noqa: B018 - parsed
    except (FieldDoesNotExist, FieldError) as raised:
        hint = 'A DateTimeField of the row, or of one that it leads to: idle = ("last_seen", timedelta(days=30)).'
        yield error(
            type(index), f".idle: {path_problem(index, raised, index.get_idle())}", hint, "zrank.E038"
        )
