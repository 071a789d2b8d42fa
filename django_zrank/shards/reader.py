"""Reads of an index in shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from ..conf import get_settings
from ..declaration import Index
from ..queries.positions import ScoreByCommand
from ..queries.request import ManySlots, Swapped
from ..queries.steps import Question, Steps, together
from ..queries.view import View
from ..redis import reader_of
from ..redis.executor import believed
from ..redis.keys import Keys
from ..redis.reader import Reader
from ..redis.sending import spreads_keys
from ..store import Health
from .members import Shards
from .queries import over_shards

if TYPE_CHECKING:
    from ..redis.loops import Loop

__all__ = ["ShardedReader"]

Answer = TypeVar("Answer")


class ShardedReader(Reader):
    """Answers questions about one index by requests to all of its shards.

    Shards may be of different builds, as they are swapped one by one, but never of different declarations.
    """

    def __init__(self, index: Index) -> None:
        super().__init__(index)
        self.readers = [reader_of(holder) for holder in index.holders]
        self.swaps += len(self.readers)  # a rebuild swaps them one by one
        self._held = [reader.keys for reader in self.readers]
        self._are_apart = bool(index.attached_paths())
        """True if no script may read several shards: attachments are read from one, and servers may refuse to."""

    @property
    def believed(self) -> Shards | None:  # type: ignore[override]
        live = believed(self._held)
        return self._shards(live) if live else None

    def learning(self) -> Steps[Shards]:  # type: ignore[override]
        return self._shards(tuple((yield from together([reader.learning() for reader in self.readers]))))

    def _shards(self, live: tuple[Keys, ...]) -> Shards:
        return Shards.made(live, not (self._are_apart or spreads_keys(get_settings().redis_alias)))

    def asking(self, question: Question[Answer], view: View, server: str | None = None) -> Steps[Answer]:
        """The steps to the answer, from one shard if that is enough."""
        if isinstance(question, ScoreByCommand):
            return reader_of(self.index.holder_of(question.member)).asking(question, view, server)
        return super().asking(question, view, server)

    def _request(  # type: ignore[override]
        self, question: Question[Answer], view: View, live: Shards
    ) -> Steps[Answer]:
        if not live.build:
            raise Swapped
        if not all(map(self.index.declares, live.builds)):
            raise self.declared_otherwise()
        try:
            return (yield from over_shards(question, view, live))
        except ManySlots:  # a cluster behind one address, or behind a proxy
            self._are_apart = True
            return (yield from over_shards(question, view, live.apart()))

    def gathering(
        self, ask: Callable[..., Steps[Answer]], members: Sequence[str] | None = None
    ) -> Steps[list[Answer]]:
        return self.running(lambda live: live.each(ask, members))  # type: ignore[attr-defined]

    def requiring_healthy_server(self, loop: Loop | None = None) -> Steps[list[Health]]:  # type: ignore[override]
        """The steps that check the servers of all shards in one round trip, and trust them for a second. Return what
        they found."""
        now = monotonic()
        found = yield from together([reader.requiring_healthy_server(loop) for reader in self.readers])
        self.trust.begin(loop, now)
        return found
