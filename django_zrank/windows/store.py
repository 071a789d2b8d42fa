"""Notes in Redis of the time up to which windows were swept.

``meta`` has four more fields; times are in microseconds of the database's clock. ``swept``: the time up to which all
that left a window has marks. ``sweep``: the name of the latest sweep. ``first_read``: the earliest time as of which
rows were read and written since it began. ``last_read``: the latest such time of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Final, NamedTuple

from ..redis.scripts import Script
from ..store import Store

__all__ = ["Swept", "WindowStore", "note_read"]

BEGIN_SWEEP: Final = Script("begin_sweep", __package__)
NOTE_READ: Final = Script("note_read", __package__)
NOTE_SWEPT: Final = Script("note_swept", __package__)


class Swept(NamedTuple):
    """The progress of sweeps, as another one begins."""

    build: str

    term: str
    """The term under which the server is trusted."""

    nonce: str
    """The name of the sweep that begins."""

    moment: int | None
    """The time up to which members have marks; None if there is no note."""

    read: int | None = None
    """The latest time as of which rows were read and written; None if there is no note."""


class WindowStore(Store):
    """An index with windows in Redis, as sweeps write it."""

    def begin_sweep(self) -> Swept:
        """Begin a sweep, and return the progress of others."""
        nonce = token_hex(4)
        build, term, *moments = map(bytes.decode, self.call(BEGIN_SWEEP, (self.keys.meta,), (nonce,)))
        return Swept(build, term, nonce, *(int(moment) if moment else None for moment in moments))

    def note_swept(self, since: Swept, moment: int, now: int) -> bool:
        """Note progress of a sweep that began with ``since``. Return False on another server or build, or if another
        sweep has begun."""
        was_ahead = since.read is not None and since.read > now
        arguments = since.build, since.term, since.nonce, moment, since.read if was_ahead else ""
        return self._is_done(NOTE_SWEPT, (self.keys.meta,), arguments)


def note_read(store: Store, moments: Sequence[int]) -> None:
    """Note that a push is about to remove members which weren't ranked at a time between these."""
    store.call(NOTE_READ, (store.keys.meta,), (min(moments), max(moments)))
