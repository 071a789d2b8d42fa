"""Operations on the parts of an index: one that can't be reached does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TypeVar

from redis.exceptions import ConnectionError, TimeoutError

from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..index import RankIndex
from ..store import Store
from .breaker import Breaker, breaker

__all__ = ["Reach", "is_suspended", "resume", "suspend"]

Result = TypeVar("Result")


def is_suspended(part: RankIndex) -> bool:
    """Return True if a part, or its server, did not answer a moment ago."""
    # The part first: if no node serves it, each search for its server queries other nodes.
    return _own(part).is_open or _server_of(part).is_open


def suspend(part: RankIndex, error: IndexUnavailable) -> None:
    """Skip a server that did not answer, with all parts on it, for a moment; or only the part if its server answers, as
    while a slot moves."""
    (_server_of(part) if _is_down(error) else _own(part)).trip(error)


def suspend_server(part: RankIndex, error: IndexUnavailable) -> None:
    """Skip the server of a part for a moment, although it answers."""
    _server_of(part).trip(error)


def resume(part: RankIndex) -> None:
    """Note that a part has answered."""
    _server_of(part).reset()
    _own(part).reset()


def _server_of(part: RankIndex) -> Breaker:
    try:
        return breaker.of(Store.of(part).node())
    except IndexUnavailable:  # no node serves its slot
        return _own(part)


def _own(part: RankIndex) -> Breaker:
    return breaker if part.whole is part else breaker.of(part.name)


def _is_down(error: IndexUnavailable) -> bool:
    """Return True for an error that any request to the same server would raise."""
    return isinstance(error.__cause__, (ConnectionError, TimeoutError))


class Reach:
    """One operation on the parts of ``index``. A part that has failed is skipped from then on, and so are all parts on
    a server that didn't answer."""

    def __init__(self, index: RankIndex) -> None:
        self.index = index

        self.failed: dict[RankIndex, IndexUnavailable] = {}
        """Parts that could not be reached, with the reasons."""

        self._down: dict[Breaker, IndexUnavailable] = {}

    def each(
        self, parts: Iterable[RankIndex], work: Callable[[RankIndex], Result]
    ) -> dict[RankIndex, Result]:
        """Return ``work(part)`` of each of the parts that have not failed."""
        done, is_only = {}, len(self.index.parts) == 1  # no other part shares its server
        for part in parts:
            if part in self.failed:
                continue
            try:
                done[part] = work(part) if is_only else self._try(part, work)
            except IndexUnavailable as error:
                self.failed[part] = error
        return done

    def total(self, work: Callable[..., int], limit: int | None) -> int:
        """Return the sum of ``work(part, limit=rest)`` of all parts, each with the rest of ``limit``. Raises as
        :meth:`require` does."""
        done = 0
        for part in self.index.parts:
            rest = None if limit is None else limit - done
            done += sum(self.each([part], partial(work, limit=rest)).values())
        self.require()
        return done

    def _try(self, part: RankIndex, work: Callable[[RankIndex], Result]) -> Result:
        server = _server_of(part)
        if server in self._down:
            raise self._down[server]
        if is_suspended(part) and not self._is_last_resort:
            raise IndexUnavailable(f"Index {part.name!r}: its server did not answer a moment ago")
        try:
            done = work(part)
        except (NotBuilt, IndexUnhealthy):  # the server is there
            raise
        except IndexUnavailable as error:
            if _is_down(error):
                self._down[server] = error
            if server is not breaker:
                suspend(part, error)
            raise
        if server is not breaker:
            resume(part)
        return done

    @cached_property
    def _is_last_resort(self) -> bool:
        """True if all parts are suspended, so that skipping them would leave nothing to try."""
        return all(map(is_suspended, self.index.parts))

    def require(self, parts: Iterable[RankIndex] | None = None) -> None:
        """Raise the first failure if all of ``parts`` have failed, by default those of the index."""
        asked = self.index.parts if parts is None else list(parts)
        if asked and all(part in self.failed for part in asked):
            raise self.failed[asked[0]]
