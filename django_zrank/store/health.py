"""The state of an index on a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..cluster import name_of_node, node_of
from ..queries.request import Call, Request
from ..redis import scripts
from ..redis.steps import Steps, drive
from .base import Base

__all__ = ["Health", "Serving"]


class Health(NamedTuple):
    """The state of an index on a server; a missing text is empty."""

    generation: str
    building: str

    behind: str
    """The term of an unfinished replay, or "rebuild" if the index must be rebuilt."""

    applied: str
    """The version of the last write."""

    accepted: str
    """The identity of the server that was accepted."""

    term: str
    """The term under which it was."""

    owner: str
    """The owner of the build, as in the database's row of the generation."""

    server: str
    """The identity of the server that answers: its process and its replication history."""

    is_first: bool
    """True if its history has no predecessor: it was never promoted, or fully resynchronised."""

    is_evicted: bool
    """True if keys are missing that nobody removed."""

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> Health:
        """Parse the reply of ``check_health.lua``."""
        words = list(map(bytes.decode, reply))
        fields = dict(zip(words[::2], words[1::2], strict=True))
        history, keys = fields.pop("history"), fields.pop("keys")
        return cls(**fields, is_first=history == "first", is_evicted=keys == "evicted")

    @property
    def is_accepted(self) -> bool:
        """True if the server was accepted, and has neither restarted nor begun another history since."""
        return self.accepted == self.server

    @property
    def position(self) -> tuple[int, int]:
        """The term and the version of the last write that the server has: batches beyond it are lost."""
        return int(self.term or 0), int(self.applied or 0)


class Serving(Base):
    """The server of a store: its health, and whether it is accepted."""

    def note_watcher(self, seconds: float) -> None:
        """Note that a watcher keeps the index in step, and will for some seconds; with 0, that it has ended."""
        call = ("SET", ("1", "PX", int(1000 * seconds))) if seconds else ("DEL", ())
        self._call(call[0], (self.keys.watcher,), call[1])

    def check_health(self) -> Health:
        """Return the :class:`Health` of the index on this server. It takes a second round trip after a swap."""
        return drive(self.checking_health(), self.send)

    def checking_health(self) -> Steps[Health]:
        """The steps of :meth:`check_health`."""
        live = self.believed or (yield from self.learning())
        while True:
            arguments = (live.generation, self.LEASE)
            (state,) = yield Request((Call(scripts.CHECK_HEALTH, (live.root, live.meta), arguments),))
            health = Health.parse(state)
            if health.generation == live.generation:
                return health
            live = self.believe(health.generation)

    def server_info(self) -> dict[str, Any]:
        """Return the reply to INFO of the server that holds the index."""
        return self.guard(lambda client: node_of(client, self.keys.meta).info())

    def node(self) -> str:
        """Return the name of the node of a cluster that holds the index; '' without a cluster."""
        return self.guard(name_of_node, self.keys.meta)

    def memory(self) -> int:
        """Return Redis's estimate of the bytes that members take, without facet rankings."""
        live = self.live
        calls = [Call("MEMORY USAGE", (key,)) for key in (live.root, live.memberships)]
        return sum(size or 0 for size in self.send(Request(calls)))

    def adopt_server(self, health: Health, term: int, *, behind: bool) -> bool:
        """Accept a server that was found in this state. Return False if it has another state by now."""
        keys = self.keys
        state = (health.generation, health.applied, health.term, health.server, term, int(behind))
        return self._is_done(scripts.ADOPT_SERVER, (keys.meta, keys.doomed), state)

    def finish_replay(self, behind: str) -> bool:
        """Note that the replay named ``behind`` is done. Return False if another has begun."""
        return self._is_done(scripts.FINISH_REPLAY, (self.keys.meta,), (behind,))
