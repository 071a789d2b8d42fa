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

_REST: Final = 20
"""The duration of a rest after slow work, in durations of the work."""

_done: Recent[bool] = Recent()
"""By the names of an index and an extension: the work that this process has done lately."""


def is_due(index: Index, name: str) -> bool:
    """Return True, at most every ``FLUSH_EVERY`` seconds, or as often as the extension of this name wants, if a worker
    should do its work."""
    one = declared(index).get(name)
    return one is not None and _begin(index, name, min(one.every, get_settings().flush_every))


def _begin(index: Index, name: str, seconds: float) -> bool:
    """Return True if work was last begun so many seconds ago. It begins then."""
    return not _done.get((index.name, name)) and _done.keep((index.name, name), True, seconds)


def rest(index: Index, name: str, seconds: float) -> None:
    """Put the next work off, up to ``FLUSH_EVERY`` seconds, because this one has taken so many seconds."""
    most = get_settings().flush_every
    if (pause := min(_REST * seconds, most)) > min(installed()[name].every, most):
        _done.keep((index.name, name), True, pause)


def work_again(index: Index, name: str) -> None:
    """Make the next work due at once, as more is left."""
    _done.forget((index.name, name))


def work_soon(index: Index) -> None:
    """Do a share of the work after a push, at most every ``FLUSH_EVERY`` seconds, without waiting for a lock."""
    connection = connections[index.get_using()]
    if connection.in_atomic_block:
        return
    seconds = get_settings().flush_every
    due = [one for name, one in declared(index).items() if _begin(index, name, seconds)]
    if not due or holds_snapshot(connection):
        return
    try:
        with without_waiting(connection):
            for one in due:
                one.work(index, limit=_SHARE, patience=0.0, skip_locked=True)
    except (Busy, IndexUnavailable) as error:
        logger.debug("Index %r: not all was done. %s", index.name, error)


def is_behind(index: Index, store: Store) -> bool:
    """Return True if the database has lost what extensions had noted in it: it was restored from a backup, or failed
    over."""
    return any(one.is_behind(index, store) for one in installed().values())
