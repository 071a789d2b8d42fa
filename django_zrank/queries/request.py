"""Requests: calls to Redis, sent in one round trip."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ..exceptions import IndexUnavailable
from ..redis.scripts import Script

__all__ = ["FULL", "Blocking", "Call", "ManySlots", "Request", "Swapped"]

Answer = TypeVar("Answer")

FULL: Final = 2000
"""The most microseconds that the requests of one round trip may take of the server together, about."""


class Swapped(Exception):
    """The build requested is not the live one."""


class ManySlots(IndexUnavailable):
    """The keys of a call lie in several slots of a cluster."""


class Call(NamedTuple):
    """A script or command, with its keys and arguments."""

    command: Script | str
    keys: Sequence[str]
    arguments: Sequence[Any] = ()

    cost: int = 0
    """Microseconds that it may take of the server, about; 0 if it takes few."""


class Request(NamedTuple):
    """Calls that are sent in one round trip."""

    calls: Sequence[Call]

    writes: bool = False
    """True if only a primary can serve it."""

    atomic: bool = False
    """True if the calls are a transaction."""

    once: bool = False
    """True if its one call must not be sent again after an error of the connection."""

    each: bool = False
    """True if its calls are about several indexes on one server: an error is the reply to one, and isn't raised."""

    @property
    def cost(self) -> int:
        """Microseconds that it may take of the server, about."""
        return sum([call.cost for call in self.calls])


@dataclass(frozen=True, slots=True)
class Blocking(Generic[Answer]):
    """A call that blocks, as queries of the database do. Coroutines leave it to a thread."""

    call: Callable[[], Answer]

    coroutine: Callable[[], Awaitable[Answer]] | None = None
    """The one that coroutines await in its place."""
