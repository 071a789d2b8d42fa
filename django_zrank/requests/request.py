"""Requests: calls to Redis, with the functions that parse the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ..scripts import Script

__all__ = ["FEW", "FULL", "Call", "Request", "Swapped", "in_turn", "merge"]

Answer = TypeVar("Answer")
Other = TypeVar("Other")

FEW: Final = 10
"""The most members that a light request draws or reads."""


FULL: Final = 2000
"""The most microseconds that the requests of one round trip may take of the server together, about."""


class Swapped(Exception):
    """The generation requested is not the live one."""


class Call(NamedTuple):
    """A script or command, with its keys and arguments."""

    command: Script | str
    keys: Sequence[str]
    arguments: Sequence[Any] = ()

    cost: int = 0
    """Microseconds that it may take of the server, about; 0 if it takes few."""


class Request(NamedTuple, Generic[Answer]):
    """Calls that are sent in one round trip."""

    calls: Sequence[Call]

    parse: Callable[[list[Any]], Answer | Request[Answer]]
    """A function from the replies to the answer, or to the next request."""

    writes: bool = False
    """True if only a primary can serve it."""

    atomic: bool = False
    """True if the calls are a transaction."""

    once: bool = False
    """True if its one call must not be sent again after an error of the connection."""

    delay: float = 0.0
    """Seconds to wait before it is sent, while another client makes an intersection."""

    replica: bool = False
    """True if a replica is asked."""

    spread: bool = False
    """True if its calls have keys of several shards, which may lie on several servers."""

    light: bool = False
    """True if it costs the server at most about 0.1 ms, so that those of several coroutines may be sent together."""

    def then(self, follow: Callable[[Answer], Other | Request[Other]]) -> Request[Other]:
        """Return a request whose answer is ``follow(answer)`` of this one, which may be a further request."""

        def parse(replies: list[Any]) -> Other | Request[Other]:
            answer = self.parse(replies)
            return answer.then(follow) if isinstance(answer, Request) else follow(answer)

        return self._replace(parse=parse)  # type: ignore[arg-type, return-value]


def merge(
    requests: Sequence[Request[Answer]], *, spread: bool = False, at_once: int | None = None
) -> Request[list[Answer]]:
    """Merge requests into one for all their answers; ``spread``: true if they have keys of several shards. ``at_once``:
    the most that go in one round trip, or fewer, as they cost; all if it is None."""
    return _merged(dict(enumerate(requests)), {}, spread, at_once)


def _merged(
    waiting: Mapping[int, Request[Answer]], answers: Mapping[int, Answer], spread: bool, at_once: int | None
) -> Request[list[Answer]]:
    """Merge ``waiting`` requests, given the ``answers`` that are known. Each round trip makes a new request instead of
    wrapping the last one: thousands of wrappers would exceed Python's recursion limit."""
    sent = waiting if at_once is None else _first(waiting, at_once)
    requests = sent.values()

    def parse(replies: list[Any]) -> list[Answer] | Request[list[Answer]]:
        remaining, found, following = iter(replies), {**answers}, {}
        for at, request in sent.items():
            answer = request.parse(list(islice(remaining, len(request.calls))))
            if isinstance(answer, Request):
                following[at] = answer
            else:
                found[at] = answer
        # Those that have begun end first, because what they have put into Redis expires.
        following |= {at: request for at, request in waiting.items() if at not in sent}
        if following:
            return _merged(following, found, spread, at_once)
        return [found[at] for at in range(len(found))]

    return Request(
        tuple(chain.from_iterable(request.calls for request in requests)),
        parse,
        writes=any(request.writes for request in requests),
        atomic=any(request.atomic for request in requests),
        delay=min((request.delay for request in requests), default=0.0),
        spread=spread or any(request.spread for request in requests),
    )


def _first(waiting: Mapping[int, Request[Answer]], most: int) -> Mapping[int, Request[Answer]]:
    """The first requests, as many as go in one round trip: at least one."""
    first: dict[int, Request[Answer]] = {}
    cost = 0
    for at, request in waiting.items():
        cost += sum(call.cost for call in request.calls)
        if first and (cost > FULL or len(first) == most):
            break
        first[at] = request
    return first


def in_turn(requests: Sequence[Request[Answer]], answers: tuple[Answer, ...] = ()) -> Request[list[Answer]]:
    """Chain requests into one for all their answers, each sent after the one before."""
    first, *others = requests

    def follow(answer: Answer) -> list[Answer] | Request[list[Answer]]:
        found = (*answers, answer)
        return in_turn(others, found) if others else list(found)

    return first.then(follow)
