"""Touches, until they are written to their column; and the progress of sweeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from .. import scripts
from .base import Base

__all__ = ["Swept", "Touches"]


class Swept(NamedTuple):
    """The progress of sweeps."""

    generation: str

    term: str
    """The term under which the server was accepted."""

    moment: int | None
    """The time at which the last member that was removed had last been seen; None if there is no note."""

    member: str
    """Its primary key; '' for all members of that time."""


class Touches(Base):
    """The touches of a store, of an index that declares ``idle``. Times are microseconds since 1970."""

    def due_touches(self, limit: int) -> list[str]:
        """Return the members whose touches are due, the longest due first. Some may not have been touched."""
        seconds, micros = map(int, self._call("TIME", ()))
        now = seconds * 1_000_000 + micros
        found = self._call("ZRANGEBYSCORE", (self.keys.due,), ("-inf", now, "LIMIT", 0, limit))
        return [member.decode() for member in found]

    def read_touches(self, members: Collection[str]) -> dict[str, int]:
        """Return the times of touches that aren't in the column yet, by members."""
        if not members:
            return {}
        found: list[Any] = self._call("ZMSCORE", (self.keys.touched,), tuple(members))
        return {member: int(time) for member, time in zip(members, found, strict=True) if time is not None}

    def settle_touches(self, members: Collection[str], written: Mapping[str, int], rest: timedelta) -> None:
        """Note that the column of ``members`` has the times that were ``written``."""
        if not members:
            return
        keys = self.keys
        pairs = [part for member in members for part in (member, written.get(member, ""))]
        micros = rest // timedelta(microseconds=1)
        self._call(scripts.SETTLE_TOUCHES, (keys.touched, keys.due), (micros, *pairs))

    def swept(self) -> Swept:
        """Return the progress of sweeps."""
        generation, term, moment, member = self._noted("generation", "term", "swept", "swept_member")
        return Swept(generation, term, int(moment) if moment else None, member)

    def note_swept(self, since: Swept, moment: int, member: str) -> bool:
        """Note progress since ``since`` was read. Return False on another server or build."""
        arguments = since.generation, since.term, moment, member
        return self._is_done(scripts.NOTE_SWEPT, (self.keys.meta,), arguments)
