"""Shown columns, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..extension import Extension
from .checks import check_shown
from .declaration import ShowingIndex

__all__ = ["Shown"]


class Shown(Extension[ShowingIndex]):
    """A check alone: memberships carry the values, so the mirror has no more to do."""

    needs = ("model",)

    def check(self, index: ShowingIndex) -> Iterator[CheckMessage]:
        return check_shown(index)
