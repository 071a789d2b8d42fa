"""The parts of an index, as far as they can be reached: one that is away stops none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..store import Store
from .breaker import Breaker, breaker

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Reach", "breaker_of"]

Result = TypeVar("Result")


def breaker_of(part: RankIndex) -> Breaker:
    """The breaker of the server that a part lies on."""
    try:
        return breaker.of(Store(part.name).node())
    except IndexUnavailable:  # no node serves its slot
        return breaker.of(part.name)


class Reach:
    """The parts of ``index`` in the course of one operation. A part that has failed is left alone from then on, and so
    are all others on a server that didn't answer."""

    def __init__(self, index: RankIndex) -> None:
        self.index = index

        self.failed: dict[RankIndex, IndexUnavailable] = {}
        """Parts that could not be reached, with the reasons."""

        self._down: dict[Breaker, IndexUnavailable] = {}

    def each(
        self, parts: Iterable[RankIndex], work: Callable[[RankIndex], Result]
    ) -> dict[RankIndex, Result]:
        """Return ``work(part)`` of each of the parts that have not failed."""
        done = {}
        for part in parts:
            if part in self.failed:
                continue
            try:
                done[part] = self._try(part, work)
            except IndexUnavailable as error:
                self.failed[part] = error
        return done

    def _try(self, part: RankIndex, work: Callable[[RankIndex], Result]) -> Result:
        server = breaker_of(part) if len(self.index.parts) > 1 else breaker
        if server in self._down:
            raise self._down[server]
        if server.is_open and not self._is_last_resort:
            raise IndexUnavailable(f"Index {part.name!r}: its server did not answer a moment ago")
        try:
            done = work(part)
        except (NotBuilt, IndexUnhealthy):  # the server is there
            raise
        except IndexUnavailable as error:
            self._down[server] = error
            if server is not breaker:
                server.trip(error)
            raise
        if server is not breaker:
            server.reset()
        return done

    @cached_property
    def _is_last_resort(self) -> bool:
        """True if there is nothing else to try than servers that did not answer."""
        parts = self.index.parts
        return len(parts) == 1 or all(breaker_of(part).is_open for part in parts)

    def require(self, parts: Iterable[RankIndex] | None = None) -> None:
        """Raise what kept all of some parts, by default those of the index, from being reached."""
        asked = self.index.parts if parts is None else list(parts)
        if asked and all(part in self.failed for part in asked):
            raise self.failed[asked[0]]
