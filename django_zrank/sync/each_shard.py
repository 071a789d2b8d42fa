"""Operations on the parts of indexes: one that can't be reached does not stop the others, nor keep pushes waiting."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from itertools import chain, islice, repeat
from time import monotonic
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, TimeoutError

from ..conf import get_settings
from ..declaration import Declaration
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..queries.query import Query, merged
from ..queries.request import Request
from ..store import Store

logger = logging.getLogger("django_zrank.sync")

Result = TypeVar("Result")


class Breaker:
    """A circuit breaker, open for ``RETRY_AFTER`` seconds after a failure. A process has one for its server, and one
    for each node of a cluster and each shard.

    Threads share it without a lock: a race costs at most one extra call or warning.
    """

    def __init__(self) -> None:
        self._closes_at = 0.0
        self._failing = False
        self._others: dict[str, Breaker] = {}

    def of(self, name: str) -> Breaker:
        """The breaker of a node of a cluster, or of a shard; this one for '', the only server."""
        return self._others.setdefault(name, Breaker()) if name else self

    def forget(self) -> None:
        """Forget all failures."""
        self._others.clear()
        self.reset()

    @property
    def is_open(self) -> bool:
        """True while pushes are skipped."""
        return monotonic() < self._closes_at

    @property
    def is_any_open(self) -> bool:
        """True while some pushes are skipped."""
        return self.is_open or any(other.is_open for other in list(self._others.values()))

    def trip(self, error: IndexUnavailable) -> None:
        """Note that a push failed. Warns once for each outage."""
        seconds = get_settings().retry_after
        self._closes_at = monotonic() + seconds
        if not self._failing:
            self._failing = True
            logger.warning("Pushes are suspended, the next is tried in %g s. %s", seconds, error)

    def reset(self) -> None:
        """Note that a push succeeded."""
        self._closes_at = 0.0
        if self._failing:
            self._failing = False
            logger.info("Pushes work again. Drains pick up what was saved meanwhile.")


breaker = Breaker()


def _server_of(part: Declaration) -> Breaker:
    try:
        return breaker.of(Store.of(part).node())
    except IndexUnavailable:  # no node serves its slot
        return _own(part)


def _own(part: Declaration) -> Breaker:
    return breaker if part.whole is part else breaker.of(part.name)


def _is_down(error: IndexUnavailable) -> bool:
    """Return True for an error that any request to the same server would raise."""
    return isinstance(error.__cause__, (ConnectionError, TimeoutError))


class EachShard:
    """One operation on the parts of indexes. A part that has failed is skipped from then on, and so are all parts on a
    server that didn't answer."""

    def __init__(self, *indexes: Declaration) -> None:
        self.parts = tuple(chain.from_iterable(index.parts for index in indexes))

        self.failed: dict[Declaration, IndexUnavailable] = {}
        """Parts that could not be reached, with the reasons."""

        self.waited: defaultdict[Breaker, float] = defaultdict(float)
        """Seconds for which the answers of each server were waited for by :meth:`together`."""

        self._down: dict[Breaker, IndexUnavailable] = {}
        self._server_of = cache(_server_of)

    def is_suspended(self, part: Declaration) -> bool:
        """Return True if a part, or its server, did not answer a moment ago."""
        # The part first: if no node serves it, each search for its server queries other nodes.
        return _own(part).is_open or self._server_of(part).is_open

    def suspend(self, part: Declaration, error: IndexUnavailable) -> None:
        """Skip a server that did not answer, with all parts on it, for a moment; or only the part if its server
        answers, as while a slot moves."""
        (self._server_of(part) if _is_down(error) else _own(part)).trip(error)

    def resume(self, part: Declaration) -> None:
        """Note that a part has answered."""
        self._server_of(part).reset()
        _own(part).reset()

    def each(
        self, parts: Iterable[Declaration], work: Callable[[Declaration], Result]
    ) -> dict[Declaration, Result]:
        """Return ``work(part)`` of each of the parts that have not failed."""
        done = {}
        for part in parts:
            if self._may_try(part):
                try:
                    done[part] = work(part)
                except IndexUnavailable as error:
                    self._fail(part, error)
                else:
                    self._succeed(part)
        return done

    def together(self, queries: Mapping[Declaration, Query[Result]]) -> dict[Declaration, Result]:
        """Return the answers of queries about parts that have not failed. Their requests to one server share its round
        trips."""
        done: dict[Declaration, Result] = {}
        outcomes: dict[Declaration, Any] = {part: None for part in queries if self._may_try(part)}
        while outcomes:
            # Requests: writes yield no other steps.
            waiting: defaultdict[Breaker, dict[Declaration, Any]] = defaultdict(dict)
            for part, outcome in outcomes.items():
                go_on = queries[part].throw if isinstance(outcome, Exception) else queries[part].send
                try:
                    waiting[self._server_of(part)][part] = go_on(outcome)
                except StopIteration as end:
                    done[part] = end.value
                    self._succeed(part)
                except IndexUnavailable as error:
                    self._fail(part, error)
            outcomes = {}
            for server, requests in waiting.items():
                began = monotonic()
                outcomes |= _send(requests)
                self.waited[server] += monotonic() - began
        return done

    def _may_try(self, part: Declaration) -> bool:
        if part not in self.failed:
            if error := self._down.get(self._server_of(part)):
                self.failed[part] = error
            elif self.is_suspended(part) and not self._is_last_resort:
                self.failed[part] = IndexUnavailable(
                    f"Index {part.name!r}: its server did not answer a moment ago"
                )
        return part not in self.failed

    def _fail(self, part: Declaration, error: IndexUnavailable) -> None:
        self.failed[part] = error
        if isinstance(error, (NotBuilt, IndexUnhealthy)):  # the server is there
            return
        if _is_down(error):
            self._down[self._server_of(part)] = error
        if self._server_of(part) is not breaker:
            self.suspend(part, error)
            self._server_of.cache_clear()  # its other parts may have moved

    def _succeed(self, part: Declaration) -> None:
        if self._server_of(part) is not breaker:
            self.resume(part)

    @cached_property
    def _is_last_resort(self) -> bool:
        """True if all parts are suspended, so that skipping them would leave nothing to try."""
        return all(map(self.is_suspended, self.parts))

    def require(self, parts: Iterable[Declaration] | None = None) -> None:
        """Raise the first failure if all of ``parts`` have failed, by default all."""
        asked = self.parts if parts is None else list(parts)
        if asked and all(part in self.failed for part in asked):
            raise self.failed[asked[0]]


def _send(requests: Mapping[Declaration, Request]) -> dict[Declaration, Any]:
    """Return the replies to requests about parts on one server, or the error of each part."""
    first = Store.of(next(iter(requests)))
    replies: Iterable[Any]
    try:
        replies = first.send(merged(list(requests.values()), each=True))
    except IndexUnavailable as error:
        replies = repeat(error.__cause__)
    taken, outcomes = iter(replies), dict[Declaration, Any]()
    for part, request in requests.items():
        own = list(islice(taken, len(request.calls)))
        outcomes[part] = own
        if cause := next((reply for reply in own if isinstance(reply, Exception)), None):
            outcomes[part] = Store.of(part).translated(cause)
            outcomes[part].__cause__ = cause
    return outcomes
