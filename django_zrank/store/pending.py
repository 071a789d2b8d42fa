"""Scores that begin in Redis, on their way to the column."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from .. import scripts
from ..requests.request import Call, Request
from .base import Base
from .health import Health

__all__ = ["Flight", "Pending"]

_FEW: Final = 8
_MANY: Final = 64
"""Flushes whose contents are kept: a push whose rows are older reads them again; while a rebuild runs, whose rows may
be older than all of them, no flush begins beyond ``_MANY``."""

_PIECE: Final = 1000
"""Members that are reconciled in one round trip."""


class Flight(NamedTuple):
    """A flush on its way."""

    number: int
    version: int
    """Of the write that took it out of what is pending: a server that has applied less lacks it."""

    rule: str
    """By which it was changed: that of the declaration, or of the one before."""

    changes: dict[str, int]
    """Each member with its change, in units."""


class Pending(Base):
    """The pending changes of a store."""

    def take_pending(self, term: int, flushed: int, limit: int) -> Flight | None:
        """Begin a flush, or go on with the one that is in flight; ``flushed``: the last that the database noted. None:
        nothing is pending, or a rebuild has to end first.

        Raises ``IndexUnhealthy`` where the server is not the one that the database knows under this term.
        """
        keys = self.keys
        args = (term, flushed, limit, _FEW, _MANY, self.LEASE, self.rule)
        verdict, *taken = self._call(scripts.TAKE_PENDING, (keys.meta, keys.pending), args)
        if verdict == b"superseded":
            raise self.not_accepted()
        if verdict != b"taken":
            return None
        number, version, rule, *pairs = taken
        texts = (text.decode() for text in pairs[::2])
        changes = dict(zip(texts, map(int, pairs[1::2]), strict=True))
        return Flight(int(number), int(version), rule.decode(), changes)

    def settle_flush(self, term: int, number: int) -> bool:
        """Note that the column has what the flush carried. False: that was known, or the server is another."""
        return self._is_done(scripts.SETTLE_FLUSH, (self.keys.meta,), (term, number))

    def in_flight(self) -> tuple[int, int]:
        """The numbers of the last flush that was begun and of the last one that was settled."""
        taken, settled = self._call("HMGET", (self.keys.meta,), ("taken", "settled"))
        return int(taken or 0), int(settled or 0)

    def noted_rule(self) -> str:
        """Return the rule that was declared when the first of the pending scores changed; "" for none."""
        found = self._call("HGET", (self.keys.meta,), ("rule",))
        return found.decode() if found else ""

    def close(self) -> None:
        """Remove the live generation, so that no score can change and nothing can be read any more."""
        self._call("HDEL", (self.keys.meta,), ("generation", "building"))

    def took(self) -> int:
        """The version of the write that took the last flush out of what was pending."""
        return int(self._call("HGET", (self.keys.meta,), ("took",)) or 0)

    def reconcile_pending(
        self, health: Health, flushed: int, *, committed: bool, everything: bool, members: Collection[str]
    ) -> None:
        """Make what is pending what the column lacks, on a server that is about to be accepted: put back what was in
        flight unless it is ``committed``, and drop what is pending of ``members``, or ``everything``. Nothing is
        changed where it has been accepted since it was found in this state."""
        keys, texts = self.keys, list(members)
        for start in range(0, max(len(texts), 1), _PIECE):
            piece = texts[start : start + _PIECE]
            args = (health.server, health.term, self.rule, flushed, int(committed), int(everything), *piece)
            self._call(scripts.RECONCILE_PENDING, (keys.meta, keys.pending), args)

    def waiting(self) -> tuple[int, float]:
        """The number of members of which something is pending or in flight, and for how many seconds something has
        been."""
        keys = self.keys
        calls = (
            Call("HMGET", (keys.meta,), ("taken", "settled", "waiting")),
            Call("HLEN", (keys.pending,)),
            Call("TIME", ()),
        )
        (taken, settled, since), members, (seconds, micros) = self.send(Request(calls, list))
        if int(settled or 0) < int(taken or 0):
            members += self._call("HLEN", (keys.carried(int(taken)),))
        if not (members and since):
            return members, 0.0
        return members, max(0.0, seconds + (micros - int(since)) / 1e6)
