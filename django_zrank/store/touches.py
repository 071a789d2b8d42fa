"""Touched members, whose column rests; and the progress of sweeps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple

from ..redis import scripts
from .base import Base

__all__ = ["Swept", "Touches"]


class Swept(NamedTuple):
    """The progress of sweeps."""

    generation: str

    term: str
    """The term under which the server was accepted."""

    moment: int | None
    """The time up to which members that were last seen then have marks; None if there is no note."""


class Touches(Base):
    """The touches of a store, of an index that declares ``idle``. Times are microseconds since 1970."""

    def rest_members(self, members: Collection[str], rest: timedelta) -> None:
        """Note that the column of ``members`` was written, and needs no touch until ``rest`` is over."""
        if members:
            micros = rest // timedelta(microseconds=1)
            self._call(scripts.REST_MEMBERS, (self.keys.touched,), (micros, *members))

    def swept(self) -> Swept:
        """Return the progress of sweeps."""
        generation, term, moment = self._noted("generation", "term", "swept")
        return Swept(generation, term, int(moment) if moment else None)

    def note_swept(self, since: Swept, moment: int) -> bool:
        """Note progress since ``since`` was read. Return False on another server or build."""
        return self._is_done(scripts.NOTE_SWEPT, (self.keys.meta,), (since.generation, since.term, moment))
