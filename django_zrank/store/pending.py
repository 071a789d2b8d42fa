"""Write-behind: scores that changed in Redis, and that a flush writes to their column."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ..members import batched
from ..queries.request import Call, Request
from ..redis import scripts
from .base import Base
from .health import Health

__all__ = ["Flight", "Pending"]

_FEW: Final = 8
_MANY: Final = 64
"""Flushes whose contents are kept. A push whose rows are older reads them again. While a rebuild runs, up to ``_MANY``
are kept, and no flush begins beyond that."""

_PIECE: Final = 1000
"""Members that are reconciled in one round trip."""


class Flight(NamedTuple):
    """A flush that is in flight."""

    number: int
    version: int
    """The version of the write that took it: a server with a lower one lacks the flush."""

    rule: str
    """The rule by which scores were changed, perhaps of an earlier declaration."""

    changes: dict[str, int]
    """The change of each member, in units."""


class Pending(Base):
    """The pending changes of a store."""

    def take_pending(self, term: int, flushed: int, limit: int) -> Flight | None:
        """Begin a flush, or return the one in flight. ``flushed``: the last that the database noted. None: nothing is
        pending, or a rebuild must end first.

        Raises ``IndexUnhealthy`` if the database hasn't accepted the server under this term.
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

    def confirm_flush(self, term: int, flight: Flight, left: Collection[str]) -> bool:
        """Put back the changes of those that are ``left``. Return False, with nothing changed, if the flush carries
        something else by now, or on another server."""
        keys = self.keys
        args = (term, flight.number, len(flight.changes), *left)
        return self._is_done(scripts.CONFIRM_FLUSH, (keys.meta, keys.pending), args)

    def settle_flush(self, term: int, number: int) -> bool:
        """Note that the column contains the flush. Return False if that was known, or on another server."""
        return self._is_done(scripts.SETTLE_FLUSH, (self.keys.meta,), (term, number))

    def in_flight(self) -> tuple[int, int]:
        """Return the numbers of the last flush that began, and of the last one that was settled."""
        taken, settled = self._noted("taken", "settled")
        return int(taken or 0), int(settled or 0)

    def noted_rule(self) -> str:
        """Return the rule that was declared when the first of the pending scores changed; "" for none."""
        (rule,) = self._noted("rule")
        return rule

    def close(self) -> None:
        """Forget the live generation, so that nothing can be read or changed any more."""
        self._call("HDEL", (self.keys.meta,), ("generation", "building"))

    def took(self) -> int:
        """Return the version of the write that took the last flush."""
        (version,) = self._noted("took")
        return int(version or 0)

    def reconcile_pending(
        self,
        health: Health,
        flushed: int,
        *,
        committed: bool,
        everything: bool,
        members: Collection[str],
        written: Collection[str] = (),
    ) -> None:
        """Reduce what is pending to what the column lacks, before the server is accepted: restore the flush in flight
        unless it is ``committed``, but for what was ``written``; and drop the pending changes of ``members``, or
        ``everything``. Nothing changes if the server was accepted meanwhile."""
        keys = self.keys
        for piece in [*batched(members, _PIECE)] or [[]]:
            how = (health.server, health.term, self.rule, flushed, int(committed), int(everything))
            args = (*how, len(written), *written, *piece)
            self._call(scripts.RECONCILE_PENDING, (keys.meta, keys.pending), args)

    def waiting(self) -> tuple[int, float]:
        """Return the number of members with changes pending or in flight, and the age of the oldest in seconds."""
        keys = self.keys
        calls = (
            Call("HMGET", (keys.meta,), ("taken", "settled", "waiting")),
            Call("HLEN", (keys.pending,)),
            Call("TIME", ()),
        )
        (taken, settled, since), members, (seconds, micros) = self.send(Request(calls))
        if int(settled or 0) < int(taken or 0):
            members += self._call("HLEN", (keys.carried(int(taken)),))
        if not (members and since):
            return members, 0.0
        return members, max(0.0, seconds + (micros - int(since)) / 1e6)
