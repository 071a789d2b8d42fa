"""Answers out of Redis, as long as it can be believed."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ..exceptions import IndexUnhealthy, NotBuilt
from ..notes import may_be_believed
from ..requests.request import Question
from ..requests.view import View
from ..store import Health, Store
from .executor import Executor

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Reader"]

Answer = TypeVar("Answer")

_TRUST: Final = 1.0
"""Seconds for which a server that was found healthy is believed."""


class Reader(Executor):
    """Answers questions about one index."""

    def __init__(self, index: RankIndex) -> None:
        super().__init__(index.name)
        self.index = index
        self.store = Store(index.name, index.layout)

        self.until = 0.0
        """Until when the server is believed, by the process's own clock."""

    def answer(self, question: Question[Answer], view: View) -> Answer:
        """The answer to a question about some of the members."""
        return self.run(partial(question.request, view))

    def require_health(self, *, stale_will_do: bool) -> None:
        """Raise ``IndexUnhealthy`` where the server may have lost writes, ``NotBuilt`` where it holds what another
        declaration of the index says. Looked up once a second."""
        now = monotonic()
        if now < self.until:
            return
        health = self.store.check_health()
        if not self.index.declares(health.generation):
            raise NotBuilt(
                f"Index {self.name!r} was declared otherwise when it was built: sync_zrank or rebuild_zrank "
                "builds it anew"
            )
        if not stale_will_do and health.generation and not self.may_be_believed(health):
            raise IndexUnhealthy(f"Index {self.name!r}: Redis may have lost writes; sync_zrank replays them")
        self.until = now + _TRUST

    def may_be_believed(self, health: Health) -> bool:
        """Return whether Redis and the database agree. Asks Redis once more where they don't: a rebuild may have been
        put in place, and noted, after it had answered."""
        return may_be_believed(self.index, health) or may_be_believed(self.index, self.store.check_health())
