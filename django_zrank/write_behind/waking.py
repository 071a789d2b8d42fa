"""Members that aren't ranked, though their rows may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections

from ..declaration import Index
from ..extension import installed
from ..sync.push import push_after
from ..transactions import is_open

__all__ = ["wake"]


def wake(index: Index, members: Sequence[Any]) -> None:
    """Push members whose scores are about to change, unless a transaction is open. Raises
    :exc:`~django_zrank.IndexUnavailable` if rows are locked."""
    if not is_open(
        connections[index.get_using()]
    ):  # its snapshot may be old, and what it reads may be rolled back
        push_after(
            index, lambda: [pk for one in installed().values() for pk in one.rouse(index, members)], members
        )
