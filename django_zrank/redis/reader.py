"""Reads from Redis, as long as it is healthy."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ..builds import may_be_believed, may_be_written
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import IndexUnhealthy, NotBuilt
from ..extension import sources
from ..queries.request import Blocking, Swapped
from ..queries.steps import Once, Question, Steps
from ..queries.view import View
from ..store import Health, Store
from .asynchronous import adrive
from .executor import Executor
from .keys import Keys

if TYPE_CHECKING:
    from .loops import Loop

__all__ = ["Reader"]

Answer = TypeVar("Answer")

_TRUST: Final = 1.0
"""Seconds for which a server is trusted after it was found healthy."""


class Trust:
    """The time, by this process's monotonic clock, until which a server is trusted: by blocking code, and by each event
    loop, whose connections may lead to another server for a while after a failover."""

    def __init__(self) -> None:
        self.until = 0.0

    def is_over(self, loop: Loop | None) -> bool:
        return monotonic() >= (self.until if loop is None else loop.until.get(self, 0.0))

    def begin(self, loop: Loop | None, now: float) -> None:
        if loop is None:
            self.until = now + _TRUST
        else:
            loop.until[self] = now + _TRUST


class Reader(Executor):
    """Answers questions about one index."""

    def __init__(self, index: Index) -> None:
        super().__init__(index.name)
        self.index = index
        self.store = Store(index.name, index.layout)

        self.trust, self._write_trust = Trust(), Trust()

        self.healthy_server = Once(self.trust, self.requiring_healthy_server, self.trust.is_over)
        """The step that ensures, once a second, that the server may be read."""

        self.trusted_server = Once(
            self._write_trust, self._requiring_trusted_server, self._write_trust.is_over
        )
        """The step that ensures, once a second, that the server may take changes of scores."""

    def answer(self, question: Question[Answer], view: View) -> Answer:
        """Return the answer to a question, without checking the server's health."""
        return self.run(partial(self._request, question, view))

    def asking(self, question: Question[Answer], view: View, server: str | None = None) -> Steps[Answer]:
        """The steps to the answer to a question, if the server is healthy; ``server``: "primary" or one of
        :data:`~django_zrank.extension.sources`, None for what ``ZRANK["READS"]`` says."""
        ask = partial(self._request, question, view)
        if self.index.attached:
            ask = partial(self.index.reading, ask)
        if source := sources.get(server or get_settings().reads):
            steps: Steps[Answer] = source.asking(self, ask, view)
            return steps
        # Each step resumes every generator on the way, so blocking code skips this one while it has no effect.
        is_trusted = monotonic() < self.trust.until and _get_running_loop() is None
        return self.running(ask, None if is_trusted else self.healthy_server)

    def gathering(
        self, ask: Callable[..., Steps[Answer]], members: Sequence[str] | None = None
    ) -> Steps[list[Answer]]:
        """The steps to the answers of all that hold the index, each about its own of the ``members``: of this one."""
        given = () if members is None else (members,)
        answer = yield from self.running(lambda keys: ask(keys, *given))
        return [answer]

    def _request(self, question: Question[Answer], view: View, live: Keys) -> Steps[Answer]:
        """Return the steps to the answer. Raises ``NotBuilt`` if that was built from another declaration of
        the index, as during a deployment; ``Swapped`` if there was none, as plain commands would find it empty."""
        if not live.build:
            raise Swapped
        if not self.index.declares(live.build):
            raise self.declared_otherwise()
        return question.steps(view, live)

    def requiring_healthy_server(self, loop: Loop | None = None) -> Steps[Health]:
        """The steps that check the server of a loop, or of blocking code, and trust it for a second. Return what they
        found.

        Raises ``IndexUnhealthy`` if it may have lost writes, unless ``ZRANK["UNHEALTHY"]`` says to serve these;
        ``NotBuilt`` if it holds a build of another declaration of the index.
        """
        now = monotonic()
        health = yield from self.store.checking_health()
        if not (yield Blocking(partial(self.index.declares, health.build))):
            raise self.declared_otherwise()
        if health.build and get_settings().unhealthy != "serve_stale":
            # Twice, as a rebuild may be swapped in between the reply of Redis and the database's, or a write noted.
            is_believed, row = yield Blocking(partial(may_be_believed, self.index, health))
            if not is_believed:
                health = yield from self.store.checking_health()
                is_believed, _ = yield Blocking(partial(may_be_believed, self.index, health, row))
            if not is_believed:
                raise IndexUnhealthy(
                    f"Index {self.name!r}: Redis may have lost writes; sync_zrank replays them"
                )
        self.trust.begin(loop, now)
        return health

    def declared_otherwise(self) -> NotBuilt:
        return NotBuilt(
            f"Index {self.name!r} was built from another declaration: run migrate and sync_zrank, or "
            "rebuild_zrank"
        )

    async def adrive(self, steps: Steps[Answer]) -> Answer:
        """Take the steps in a coroutine, and return the answer."""
        return await adrive(steps, self)

    def _requiring_trusted_server(self, loop: Loop | None = None) -> Steps[None]:
        """The steps that check the server for changes of scores. Raises ``IndexUnhealthy`` if it may not take them,
        ``NotBuilt`` if it holds a build of another declaration of the index."""
        now = monotonic()
        health = yield from self.store.checking_health()
        if not (yield Blocking(partial(self.index.declares, health.build))):
            raise self.declared_otherwise()
        if health.build:
            is_writable, row = yield Blocking(partial(may_be_written, self.index, health))
            if not is_writable and row is not None:
                health = yield from self.store.checking_health()
                is_writable, _ = yield Blocking(partial(may_be_written, self.index, health, row))
            if not is_writable:
                raise self.not_accepted()
        self._write_trust.begin(loop, now)
