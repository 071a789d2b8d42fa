"""Reads from replicas, as far as they are up to date."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from ..conf import get_settings
from ..exceptions import IndexUnavailable
from ..keys import Keys
from ..requests.request import Call, Request, Swapped
from .steps import Steps

__all__ = ["Elsewhere", "Replicas", "wrote"]

Answer = TypeVar("Answer")

Position: TypeAlias = tuple[int, int]
"""The term and the version up to which a server has what was written."""

_LOOK: Final = 1.0
"""Seconds between two looks at the primary, at most."""

_PAUSE: Final = 1.0
"""Seconds without a replica after one has failed."""

_STATE: Final = ("generation", "behind", "term", "applied")

_written: dict[Keys, tuple[Keys, Position]] = {}
"""By the keys of an index: those of the generation that this process wrote to last, and its newest write there."""

_lock: Final = Lock()


def wrote(keys: Keys, position: Position) -> None:
    """Note a write of this process to a generation, which its later reads must not miss."""
    with _lock:
        generation, newest = _written.get(keys.at(""), (keys, position))
        _written[keys.at("")] = keys, max(newest, position) if generation == keys else position


class Elsewhere(Exception):
    """No replica can answer: ask the primary."""


class Replicas:
    """The replicas of one index.

    The age of what a replica holds needs no clock but this process's own: at each look at the primary its position is
    noted. A replica that has got as far holds what the primary held then, or newer.
    """

    def __init__(self) -> None:
        self.seen: deque[tuple[float, Position]] = deque()
        """Positions of the primary, and the times at which it had them."""

        self.generation = ""
        """The generation that was live then."""

        self.looked = float("-inf")
        """The time of the last look at the primary, with success or without."""

        self.until = 0.0
        """The time until which no replica is asked."""

    def note(self, at: float, generation: str, position: Position) -> None:
        """Note the position that the primary had, or had passed, at a time. A replica with another generation has all
        that came before it."""
        if generation != self.generation:
            self.seen.clear()
        self.looked, self.generation = at, generation
        self.seen.append((at, position))
        self._forget(at)

    def is_due(self, now: float) -> bool:
        """Return True if it is time to look at the primary."""
        return now >= self.looked + min(_LOOK, get_settings().replica_lag / 2)

    def _forget(self, now: float) -> None:
        """Drop the looks that are older than a replica may be."""
        while self.seen and self.seen[0][0] < now - get_settings().replica_lag:
            self.seen.popleft()

    def asking(self, ask: Callable[[Keys], Request[Answer]], live: Keys | None) -> Steps[Answer]:
        """The steps to the answer of a replica. Raises ``Elsewhere``."""
        if live is None or monotonic() < self.until:
            raise Elsewhere
        answer: Answer | Request[Answer] = ask(live)
        parts = self.parts(live)
        states = [Call("HMGET", (keys.meta,), _STATE) for _, keys in parts]
        try:
            while isinstance(answer, Request):
                if answer.writes:
                    raise Elsewhere
                spread = answer.spread or len(states) > 1
                calls = (*states, *answer.calls)
                replies = yield answer._replace(calls=calls, replica=True, spread=spread)
                for (part, keys), found in zip(parts, replies, strict=False):
                    part._require_fresh(keys, found)
                answer = answer.parse(replies[len(states) :])
        except Swapped:
            raise Elsewhere from None
        except IndexUnavailable:
            self.until = monotonic() + _PAUSE
            raise Elsewhere from None
        return answer

    def parts(self, live: Keys) -> Sequence[tuple[Replicas, Keys]]:
        """Those of each shard, with the keys that are live there."""
        return [(self, live)]

    def _require_fresh(self, live: Keys, found: list[Any]) -> None:
        """Raise ``Elsewhere`` unless a replica holds the live generation, what this process has written to it, and what
        the primary held ``REPLICA_LAG`` seconds ago."""
        generation, behind, term, applied = ((value or b"").decode() for value in found)
        self._forget(monotonic())
        # A generation that no look has found may be of another declaration.
        if not generation == live.generation == self.generation or behind or not self.seen:
            raise Elsewhere
        written, newest = _written.get(live.at(""), (live, (0, 0)))
        least = max(self.seen[0][1], newest) if written == live else self.seen[0][1]
        if (int(term or 0), int(applied or 0)) < least:
            raise Elsewhere
