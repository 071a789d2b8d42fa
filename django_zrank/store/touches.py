"""Touches on their way to the column, and how far members that fell asleep have been removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from .. import scripts
from .base import Base

__all__ = ["Touches"]


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

    def swept(self) -> tuple[int, str] | None:
        """The time when the last member that was removed had last been seen, and its primary key; '' for all of that
        moment. None: it was never noted."""
        moment, member = self._call("HMGET", (self.keys.meta,), ("swept", "swept_member"))
        return None if moment is None else (int(moment), member.decode())

    def note_swept(self, term: int | str, moment: int, member: str = "") -> bool:
        """Note that. False: the server or the term is another."""
        return bool(self._call(scripts.NOTE_SWEPT, (self.keys.meta,), (term, moment, member)))
