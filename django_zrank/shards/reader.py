"""Reads of an index in shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from ..declaration import Declaration
from ..queries.positions import BareScore
from ..queries.query import Query, Question, together
from ..queries.request import Swapped
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

    def __init__(self, index: Declaration) -> None:
        super().__init__(index)
        self.parts = [reader_of(part) for part in index.holders]
        self.swaps += len(self.parts)  # a rebuild swaps them one by one

    @property
    def believed(self) -> Shards | None:  # type: ignore[override]
        live = [part.believed for part in self.parts]
        return Shards(tuple(live)) if all(live) else None  # type: ignore[arg-type]

    def learning(self) -> Query[Shards]:  # type: ignore[override]
        return Shards(tuple((yield from together([part.learning() for part in self.parts]))))

    def asking(self, question: Question[Answer], view: View, server: str | None = None) -> Query[Answer]:
        """The steps to the answer, from one shard if that is enough."""
        if isinstance(question, BareScore):
            return reader_of(self.index.holder_of(question.member)).asking(question, view, server)
        return super().asking(question, view, server)

    def _request(  # type: ignore[override]
        self, question: Question[Answer], view: View, live: Shards
    ) -> Query[Answer]:
        if not live.build:
            raise Swapped
        if not all(self.index.declares(keys.build) for keys in live.keys):
            raise self.declared_otherwise()
        return over_shards(question, view, live)

    def gathering(
        self, ask: Callable[..., Query[Answer]], members: Sequence[str] | None = None
    ) -> Query[list[Answer]]:
        return self.running(lambda live: live.each(ask, members))  # type: ignore[attr-defined]

    def requiring_health(self, loop: Loop | None = None) -> Query[list[Health]]:  # type: ignore[override]
        """The steps that check the servers of all shards in one round trip, and trust them for a second. Return what
        they found."""
        now = monotonic()
        found = yield from together([part.requiring_health(loop) for part in self.parts])
        self.trust.begin(loop, now)
        return found
