"""The work of extensions: a worker does it, and pushes a little of it where none runs."""

from __future__ import annotations

import logging
from typing import Final

from django.db import connections

from ..conf import get_settings
from ..declaration import Index
from ..exceptions import Busy, IndexUnavailable
from ..extension import declared, installed
from ..recent import Recent
from ..store import Store
from ..transactions import holds_snapshot, without_waiting

logger = logging.getLogger("django_zrank.sync")

_SHARE: Final = 1000
"""The most members that a process works on after a push, because a request waits for it."""

_done: Recent[bool] = Recent()
"""By name: the indexes that this process has worked on lately."""


def is_due(index: Index) -> bool:
    """Return True, at most every ``FLUSH_EVERY`` seconds, if this process should do the work of extensions."""
    if not declared(index) or _done.get(index.name):
        return False
    return _done.keep(index.name, True, get_settings().flush_every)


def work_again(index: Index) -> None:
    """Make the next work due at once, as more is left."""
    _done.forget(index.name)


def work_soon(index: Index) -> None:
    """Do a share of the work after a push, at most every ``FLUSH_EVERY`` seconds, without waiting for a lock."""
    connection = connections[index.get_using()]
    if connection.in_atomic_block or not is_due(index) or holds_snapshot(connection):
        return
    try:
        with without_waiting(connection):
            for one in installed().values():
                one.work(index, limit=_SHARE, patience=0.0, skip_locked=True)
    except (Busy, IndexUnavailable) as error:
        logger.debug("Index %r: not all was done. %s", index.name, error)


def is_behind(index: Index, store: Store) -> bool:
    """Return True if the database has lost what extensions had noted in it: it was restored from a backup, or failed
    over."""
    return any(one.is_behind(index, store) for one in installed().values())
