"""Reads from replicas that are up to date."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from ..conf import settings_of
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..extension import written
from ..queries.request import Blocking, Call, Request, Swapped
from ..queries.steps import Once, Steps
from ..queries.view import View
from ..redis import reader_of
from ..redis.keys import Keys
from ..redis.reader import Reader
from .conf import ReplicaSettings
from .sending import asend, send

__all__ = ["NoFreshReplica", "Replicas", "asking", "replicas_of", "wrote"]

Answer = TypeVar("Answer")

Position: TypeAlias = tuple[int, int]
"""The term and the version of the newest write that a server has."""

_LOOK: Final = 1.0
"""The most seconds between two looks at the primary."""

_PAUSE: Final = 1.0
"""Seconds without a replica after one has failed."""

_STATE: Final = ("build", "behind", "term", "applied")

_written: dict[Keys, tuple[Keys, Position]] = {}
"""The build that this process wrote to last, and its newest write there, by the keys of the index."""

_lock: Final = Lock()


def wrote(keys: Keys, position: Position) -> None:
    """Note a write of this process to a build, which its later reads must not miss."""
    with _lock:
        build, newest = _written.get(keys.at(""), (keys, position))
        _written[keys.at("")] = keys, max(newest, position) if build == keys else position


# What was written before is in the first look at the primary.
written.append(wrote)


class NoFreshReplica(Exception):
    """No replica can answer: ask the primary."""


def asking(reader: Reader, ask: Callable[[Any], Steps[Answer]], view: View) -> Steps[Answer]:
    """The steps to the answer of a replica, even if the primary is away; else to that of the primary, unless it was
    away a moment ago: asking it again could take another timeout.

    ``ask`` returns the steps, given the live keys. The primary is asked about groups, and about scores that change in
    Redis: a replica's position doesn't cover these.
    """
    if not reader.index.is_ahead and view.is_replicated:
        return replicas_of(reader).asking(ask)
    return reader.running(ask, reader.healthy_server)


@cache  # there are as many as indexes
def replicas_of(reader: Reader) -> Replicas:
    """Return the replicas of an index."""
    return Replicas(reader)


class Replicas:
    """The replicas of an index, or of all indexes that hold its members.

    The age of a replica's contents is measured by this process's clock alone: each look at the primary notes its
    position. A replica that has reached this position holds what the primary held then, or newer.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._holders: Sequence[Replicas] = [
            replicas_of(reader_of(holder)) for holder in reader.index.holders if holder is not reader.index
        ]

        self.positions: deque[tuple[float, Position]] = deque()
        """Positions of the primary, and the times at which it had them."""

        self.build = ""
        """The build that was live then."""

        self.looked = float("-inf")
        """The time of the last look at the primary, successful or not."""

        self.until = 0.0
        """The time until which no replica is asked."""

    def asking(self, ask: Callable[[Any], Steps[Answer]]) -> Steps[Answer]:
        """The steps to the answer of a replica, or else of the primary."""
        away = None
        try:
            if self._is_due(monotonic()):
                try:
                    yield Once(self, self._looking, lambda _: True)
                except IndexUnavailable as error:
                    if isinstance(error, (IndexUnhealthy, NotBuilt)):
                        raise
                    away = error
            return (yield from self._asking_replica(ask))
        except NoFreshReplica:
            pass
        if away:
            raise away
        return (yield from self._reader.running(ask, self._reader.healthy_server))

    def _is_due(self, now: float) -> bool:
        """Return True if it is time to look at the primary."""
        return now >= self.looked + min(_LOOK, settings_of(ReplicaSettings).replica_lag / 2)

    def _looking(self, loop: Any) -> Steps[None]:
        """The steps that note the positions that the primaries of all shards have now."""
        now = self.looked = monotonic()
        found: Any = yield from self._reader.requiring_healthy_server(loop)
        for replicas, health in zip(self._holders, found, strict=True) if self._holders else [(self, found)]:
            replicas.note(now, health.build, health.position)

    def note(self, at: float, build: str, position: Position) -> None:
        """Note the position that the primary had reached at a time. Positions of another build say nothing about
        this one."""
        if build != self.build:
            self.positions.clear()
        self.build = build
        self.positions.append((at, position))
        self._forget(at)

    def _forget(self, now: float) -> None:
        """Forget looks that are older than a replica may be."""
        while self.positions and self.positions[0][0] < now - settings_of(ReplicaSettings).replica_lag:
            self.positions.popleft()

    def _asking_replica(self, ask: Callable[[Any], Steps[Answer]]) -> Steps[Answer]:
        """The steps to the answer of a replica. Raises ``NoFreshReplica``."""
        live: Any = self._reader.believed
        if live is None or monotonic() < self.until:
            raise NoFreshReplica
        several = list(zip(self._holders, live.keys, strict=True)) if self._holders else [(self, live)]
        states = [Call("HMGET", (keys.meta,), _STATE) for _, keys in several]
        try:
            steps = ask(live)
            request = next(steps)
            while not isinstance(request, Request) or not request.writes:
                if not isinstance(request, Request):  # what only the database can test
                    request = steps.send((yield request))
                    continue
                # In one round trip, as a replica is found fresh in the same one.
                asked = request._replace(calls=(*states, *request.calls))
                replies = yield Blocking(
                    partial(send, self._reader, asked), partial(asend, self._reader, asked)
                )
                for (replicas, keys), found in zip(several, replies, strict=False):
                    replicas._require_fresh(keys, found)
                request = steps.send(replies[len(states) :])
            raise NoFreshReplica
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except Swapped:
            raise NoFreshReplica from None
        except IndexUnavailable:
            self.until = monotonic() + _PAUSE
            raise NoFreshReplica from None

    def _require_fresh(self, live: Keys, found: list[Any]) -> None:
        """Raise ``NoFreshReplica`` unless a replica holds the live build with all writes of this process, and with
        what the primary held ``REPLICA_LAG`` seconds ago."""
        build, behind, term, applied = ((value or b"").decode() for value in found)
        self._forget(monotonic())
        # A build that no look has seen may be of another declaration.
        if not build == live.build == self.build or behind or not self.positions:
            raise NoFreshReplica
        last, newest = _written.get(live.at(""), (live, (0, 0)))
        least = max(self.positions[0][1], newest) if last == live else self.positions[0][1]
        if (int(term or 0), int(applied or 0)) < least:
            raise NoFreshReplica
