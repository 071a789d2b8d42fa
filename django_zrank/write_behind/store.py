"""Changes that began in Redis, as they wait for their column.

``meta`` has further fields: ``taken`` and ``settled``, the numbers of the last flushes that were begun and finished;
``took``, the version of the last taking; ``kept``, the first flush whose contents are kept; ``cursor``, how far
takings have got in a round; ``waiting``, since when something has been pending; ``rule``, by which changes are
combined, with its column and unit: ``sum:points:0``; and those of ``lua/lib/held.lua``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, Self

from ..declaration import Index
from ..iteration import batched
from ..queries.request import Call, Request
from ..redis.scripts import Script
from ..store import Health, Store
from .keys import carried_key, pending_key

__all__ = ["Flight", "PendingStore"]

CONFIRM_FLUSH: Final = Script("confirm_flush", __package__)
DROP_PENDING: Final = Script("drop_pending", __package__)
RECONCILE_PENDING: Final = Script("reconcile_pending", __package__)
SETTLE_FLUSH: Final = Script("settle_flush", __package__)
TAKE_PENDING: Final = Script("take_pending", __package__)

_FEW: Final = 8
_MANY: Final = 64
"""Flushes whose contents are kept. A push whose rows are older reads them again. While a rebuild runs, up to ``_MANY``
are kept, and no flush begins beyond that."""

_RECONCILED: Final = 1000
"""Members that are reconciled in one round trip."""


class Flight(NamedTuple):
    """A flush that is in flight."""

    number: int
    version: int
    """The version of the write that took it: a server with a lower one lacks the flush."""

    rule: str
    """The rule by which scores were changed, with the column, perhaps of another declaration: as
    :attr:`~django_zrank.write_behind.column.Column.noted`."""

    changes: dict[str, int]
    """The change of each member, in units."""


class PendingStore(Store):
    """An index in Redis whose scores begin there, perhaps under the declaration of another release."""

    rule: str = ""
    """The rule of the declaration, as ``noted_rule``; '' if it has none."""

    @classmethod
    def of(cls, holder: Index) -> Self:
        store = super().of(holder)
        store.rule = getattr(holder, "noted_rule", "")
        return store

    def take_pending(self, term: int, flushed: int, limit: int, *, had: int = 0) -> Flight | None:
        """Begin a flush, or return the one in flight. ``flushed``: the last that the database noted; ``had``: the same
        if it did under this term, otherwise 0. None: nothing is pending, or a rebuild must end first.

        Raises ``IndexUnhealthy`` if the database hasn't trusted the server under this term, or the server lacks a
        flush.
        """
        keys = self.keys
        args = (term, flushed, had, limit, _FEW, _MANY, self.LEASE, self.rule)
        outcome, *taken = self.call(TAKE_PENDING, (keys.meta, pending_key(keys)), args)
        if outcome == b"superseded":
            raise self.not_accepted()
        if outcome == b"lacking":
            raise self.lacking()
        if outcome != b"taken":
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
        return self._is_done(CONFIRM_FLUSH, (keys.meta, pending_key(keys)), args)

    def settle_flush(self, term: int, number: int) -> bool:
        """Note that the column contains the flush. Return False if that was known, or on another server."""
        return self._is_done(SETTLE_FLUSH, (self.keys.meta,), (term, number))

    def reconcile_pending(
        self,
        health: Health,
        flushed: int,
        *,
        committed: bool,
        everything: bool,
        members: Collection[str],
        written: Collection[str] = (),
    ) -> bool:
        """Reduce what is pending to what the column lacks, before the server is trusted: restore the flush in flight
        unless it is ``committed``, but for what was ``written``; and drop the pending changes of ``members``, or
        ``everything``. Return False, with nothing changed, if the server was trusted, or has taken another flush,
        since it was found like this."""
        keys, found = self.keys, int(health.taken or 0)
        pieces = [*batched(members, _RECONCILED)] or [[]]
        for piece in pieces:
            # Until the last one, the server lacks the same flushes: who goes on after a kill drops the same members.
            noted = flushed if piece is pieces[-1] else found
            how = (health.server, health.term, found, self.rule, noted, int(committed), int(everything))
            args = (*how, len(written), *written, *piece)
            if not self._is_done(RECONCILE_PENDING, (keys.meta, pending_key(keys)), args):
                return False
        return True

    def waiting(self) -> tuple[int, float]:
        """Return the number of members with changes pending or in flight, and the age of the oldest in seconds."""
        keys = self.keys
        calls = (
            Call("HMGET", (keys.meta,), ("taken", "settled", "waiting")),
            Call("HLEN", (pending_key(keys),)),
            Call("TIME", ()),
        )
        (taken, settled, since), members, (seconds, micros) = self.send(Request(calls))
        if int(settled or 0) < int(taken or 0):
            members += self.call("HLEN", (carried_key(keys, int(taken)),))
        if not (members and since):
            return members, 0.0
        return members, max(0.0, seconds + (micros - int(since)) / 1e6)
