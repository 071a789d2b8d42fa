"""Touches on their way to the column, and how far members that fell asleep have been removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from .. import scripts
from .base import Base

__all__ = ["Swept", "Touches"]


class Swept(NamedTuple):
    """The note up to where members that fell asleep have been removed."""

    generation: str

    term: str
    """Under which the server was accepted."""

    moment: int | None
    """The time when the last of them had last been seen. None: it was never noted."""

    member: str
    """Its primary key; '' for all of that moment."""


class Touches(Base):
    """The touches of a store, of an index that declares ``idle``. Times are microseconds since 1970."""

    def due_touches(self, limit: int) -> list[str]:
        """The members whose column may be written, longest due first; some need not have been touched."""
        seconds, micros = map(int, self._call("TIME", ()))
        now = seconds * 1_000_000 + micros
        found = self._call("ZRANGEBYSCORE", (self.keys.due,), ("-inf", now, "LIMIT", 0, limit))
        return [member.decode() for member in found]

    def read_touches(self, members: Collection[str]) -> dict[str, int]:
        """The times at which members were touched, of those whose column doesn't have that yet."""
        if not members:
            return {}
        found: list[Any] = self._call("ZMSCORE", (self.keys.touched,), tuple(members))
        return {member: int(time) for member, time in zip(members, found, strict=True) if time is not None}

    def settle_touches(self, members: Collection[str], written: Mapping[str, int], rest: timedelta) -> None:
        """Note that the column of ``members`` has what was ``written``."""
        if not members:
            return
        keys = self.keys
        pairs = [part for member in members for part in (member, written.get(member, ""))]
        micros = rest // timedelta(microseconds=1)
        self._call(scripts.SETTLE_TOUCHES, (keys.touched, keys.due), (micros, *pairs))

    def swept(self) -> Swept:
        """The note, for ``note_swept()`` to go on from."""
        found = self._call("HMGET", (self.keys.meta,), ("generation", "term", "swept", "swept_member"))
        generation, term, moment, member = ((value or b"").decode() for value in found)
        return Swept(generation, term, int(moment) if moment else None, member)

    def note_swept(self, since: Swept, moment: int, member: str) -> bool:
        """Note that, of what was removed after ``since`` was read. False: the server or the build is another."""
        arguments = since.generation, since.term, moment, member
        return self._is_done(scripts.NOTE_SWEPT, (self.keys.meta,), arguments)
