"""Members that aren't ranked, though their rows may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections

from ..declaration import Index
from ..exceptions import Busy, IndexUnavailable
from ..extension import installed
from ..sync.push import push
from ..transactions import is_open, without_waiting

__all__ = ["wake"]


def wake(index: Index, members: Sequence[Any]) -> None:
    """Push members whose scores are about to change, unless a transaction is open. Raises
    :exc:`~django_zrank.IndexUnavailable` if rows are locked."""
    connection = connections[index.get_using()]
    if is_open(connection):
        return  # its snapshot may be old, and what it reads of its own may be rolled back
    try:
        with without_waiting(connection):
            locked = [pk for one in installed().values() for pk in one.rouse(index, members)]
            push(index, members)
    except Busy as error:
        raise IndexUnavailable(f"Index {index.name!r}: the database is locked: {error}") from error
    if locked:
        names = ", ".join(map(str, locked[:5]))
        raise IndexUnavailable(
            f"Index {index.name!r}: {names} can't be touched: another transaction has locked the row"
        )
