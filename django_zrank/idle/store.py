"""Notes in Redis of members that were seen, and of those that fell asleep.

``meta`` has two more fields: ``swept``, the time of last activity, in microseconds, up to which members have marks; and
``removed``, the latest one that a push has considered idle.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final, NamedTuple

from ..redis.scripts import Script
from ..store import Store
from .touching import touched_key

__all__ = ["IdleStore", "Swept", "note_removal"]

NOTE_REMOVAL: Final = Script("note_removal", __package__)
NOTE_SWEPT: Final = Script("note_swept", __package__)
REST_MEMBERS: Final = Script("rest_members", __package__)


class Swept(NamedTuple):
    """The progress of sweeps."""

    build: str

    term: str
    """The term under which the server was trusted."""

    moment: int | None
    """The time up to which members that were last seen then have marks; None if there is no note."""

    removed: int | None = None
    """The latest time of activity that a push has considered idle; None if there is no note."""


class IdleStore(Store):
    """An index with ``idle`` in Redis, as sweeps and touches write it."""

    def rest_members(self, members: Collection[str], rest: timedelta) -> None:
        """Note that the column of ``members`` was written, and needs no touch until ``rest`` is over."""
        if members:
            micros = rest // timedelta(microseconds=1)
            self.call(REST_MEMBERS, (touched_key(self.keys),), (micros, *members))

    def swept(self) -> Swept:
        """Return the progress of sweeps."""
        build, term, *moments = self.read_meta("build", "term", "swept", "removed")
        return Swept(build, term, *(int(moment) if moment else None for moment in moments))

    def note_swept(self, since: Swept, moment: int) -> bool:
        """Note progress since ``since`` was read. Return False on another server or build."""
        was_ahead = since.removed is not None and since.removed > moment
        arguments = since.build, since.term, moment, since.removed if was_ahead else ""
        return self._is_done(NOTE_SWEPT, (self.keys.meta,), arguments)


def note_removal(store: Store, moment: int) -> None:
    """Note that a push considers members idle that were last seen at ``moment``, or before."""
    store.call(NOTE_REMOVAL, (store.keys.meta,), (moment,))
