"""Reads of an index in shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from ..declaration import Index
from ..queries.positions import ScoreByCommand
from ..queries.request import Swapped
from ..queries.steps import Question, Steps, together
from ..queries.view import View
from ..redis import reader_of
from ..redis.reader import Reader
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

    @property
    def believed(self) -> Shards | None:  # type: ignore[override]
        live = [reader.believed for reader in self.readers]
        return Shards(tuple(live)) if all(live) else None  # type: ignore[arg-type]

    def learning(self) -> Steps[Shards]:  # type: ignore[override]
        return Shards(tuple((yield from together([reader.learning() for reader in self.readers]))))

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
        if not all(self.index.declares(keys.build) for keys in live.keys):
            raise self.declared_otherwise()
        return over_shards(question, view, live)

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
