"""Operations on several indexes in step: they share round trips, and one that can't be reached stops no other. A server
that doesn't answer keeps no push waiting, because its circuit breaker opens."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice, repeat
from time import monotonic
from typing import Any, Final, TypeVar

from redis.exceptions import ConnectionError, TimeoutError

from ..conf import get_settings
from ..declaration import Index
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from ..queries.request import Request
from ..queries.steps import Steps, merged
from ..store import Store

__all__ = ["Breaker", "InStep", "breaker", "is_down"]

logger = logging.getLogger("django_zrank.sync")

Result = TypeVar("Result")


class Breaker:
    """A circuit breaker, open for ``RETRY_AFTER`` seconds after a failure. A process has one for its server, and one
    for each further server, and for each index that holds a part of the members of another.

    Threads share it without a lock: a race costs at most one extra call or warning.
    """

    def __init__(self) -> None:
        self._closes_at = 0.0
        self._failing = False
        self._others: dict[str, Breaker] = {}
        self._refusing: dict[str, set[str]] = {}

    def of(self, name: str) -> Breaker:
        """The breaker of a server, or of an index, with a name of its own; this one for '', the only server."""
        return self._others.setdefault(name, Breaker()) if name else self

    def forget(self) -> None:
        """Forget all failures."""
        self._others.clear()
        self._refusing.clear()
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
            logger.info(
                "Redis answers again. Changes saved in the meantime wait as marks, and are applied next."
            )

    def refuse(self, declared: str, holder: str, error: IndexUnavailable) -> None:
        """Note that a holder of an index refuses pushes, although its server answers. Warns once for each index, until
        its holders have taken a push."""
        if declared not in self._refusing:
            logger.warning("Not pushed; further changes wait as marks until this is fixed. %s", error)
        self._refusing.setdefault(declared, set()).add(holder)

    def accept(self, declared: str, holder: str) -> None:
        """Note that a holder has taken a push."""
        if holders := self._refusing.get(declared):
            holders.discard(holder)
            if not holders:
                self._refusing.pop(declared, None)


breaker = Breaker()
"""That of the only server."""


def _own(index: Index) -> Breaker:
    return breaker if index.declared is index else breaker.of(index.name)


def is_down(error: Exception) -> bool:
    """Return True for an error that any request to the same server would raise."""
    return isinstance(error.__cause__, (ConnectionError, TimeoutError))


class InStep:
    """One operation on several indexes. One that has failed is skipped from then on, and so are all indexes on a server
    that didn't answer."""

    def __init__(self, indexes: Iterable[Index]) -> None:
        self.indexes = tuple(indexes)

        self.failed: dict[Index, IndexUnavailable] = {}
        """Indexes that could not be reached, with the reasons."""

        self.waited: defaultdict[Breaker, float] = defaultdict(float)
        """Seconds for which the answers of each server were waited for by :meth:`together`."""

        self.stores: Final = {index: Store.of(index) for index in self.indexes}

        self._down: dict[Breaker, IndexUnavailable] = {}
        self._servers: dict[Index, Breaker] = {}
        self._tried: set[Index] = set()

        self._has_one = False
        """True if all indexes are on the only server."""

    def _server_of(self, index: Index) -> Breaker:
        if self._has_one:
            return breaker
        if (found := self._servers.get(index)) is None:
            try:
                node = self.stores[index].node()
            except IndexUnavailable:  # no node serves its slot
                found = _own(index)
            else:
                found, self._has_one = breaker.of(node), not node
            self._servers[index] = found
        return found

    def is_suspended(self, index: Index) -> bool:
        """Return True if an index, or its server, did not answer a moment ago."""
        own = _own(index)
        # The index first: if no node serves it, each search for its server queries other nodes.
        if own.is_open:
            return True
        server = self._server_of(index)
        return server is not own and server.is_open

    def suspend(self, index: Index, error: IndexUnavailable) -> None:
        """Skip a server that did not answer, with all indexes on it, for a moment; or only the index if its server
        answers, as while a slot moves."""
        (self._server_of(index) if is_down(error) else _own(index)).trip(error)

    def resume(self, indexes: Iterable[Index]) -> None:
        """Note that indexes have answered."""
        for one in {one for index in indexes for one in (self._server_of(index), _own(index))}:
            one.reset()

    def reachable(self, indexes: Iterable[Index]) -> list[Index]:
        """Return those of the indexes that are not suspended. This operation doesn't look again."""
        found = [index for index in indexes if not self.is_suspended(index)]
        self._tried.update(found)
        return found

    def each(self, indexes: Iterable[Index], work: Callable[[Index], Result]) -> dict[Index, Result]:
        """Return ``work(index)`` of each of the indexes that have not failed."""
        done = {}
        for index in indexes:
            if self._may_try(index):
                try:
                    done[index] = work(index)
                except IndexUnavailable as error:
                    self._fail(index, error)
                else:
                    self._succeed(index)
        return done

    def together(self, several: Mapping[Index, Steps[Result]]) -> dict[Index, Result]:
        """Return the answers of steps about indexes that have not failed. Their requests to one server share its
        round trips."""
        done: dict[Index, Result] = {}
        outcomes: dict[Index, Any] = {index: None for index in several if self._may_try(index)}
        while outcomes:
            # Requests: writes yield no other steps.
            waiting: defaultdict[Breaker, dict[Index, Any]] = defaultdict(dict)
            for index, outcome in outcomes.items():
                go_on = several[index].throw if isinstance(outcome, Exception) else several[index].send
                try:
                    waiting[self._server_of(index)][index] = go_on(outcome)
                except StopIteration as end:
                    done[index] = end.value
                    self._succeed(index)
                except IndexUnavailable as error:
                    self._fail(index, error)
            outcomes = {}
            for server, requests in waiting.items():
                began = monotonic()
                outcomes |= self._send(requests)
                self.waited[server] += monotonic() - began
        return done

    def _may_try(self, index: Index) -> bool:
        if index in self._tried and not self._down:
            return index not in self.failed
        self._tried.add(index)
        if index not in self.failed:
            if error := self._down.get(self._server_of(index)):
                self.failed[index] = error
            elif self.is_suspended(index) and not self._is_last_resort:
                self.failed[index] = IndexUnavailable(
                    f"Index {index.name!r}: its server did not answer a moment ago"
                )
        return index not in self.failed

    def _fail(self, index: Index, error: IndexUnavailable) -> None:
        self.failed[index] = error
        if isinstance(error, (NotBuilt, IndexUnhealthy)):  # the server is there
            return
        if is_down(error):
            self._down[self._server_of(index)] = error
        if self._server_of(index) is not breaker:
            self.suspend(index, error)
            self._servers.clear()  # its other indexes may have moved

    def _succeed(self, index: Index) -> None:
        if not self._has_one and self._server_of(index) is not breaker:
            self.resume([index])

    @cached_property
    def _is_last_resort(self) -> bool:
        """True if all indexes are suspended, so that skipping them would leave nothing to try."""
        return all(map(self.is_suspended, self.indexes))

    def require(self, indexes: Iterable[Index] | None = None) -> None:
        """Raise the first failure if all of ``indexes`` have failed, by default all."""
        asked = self.indexes if indexes is None else list(indexes)
        if asked and self.failed.keys() >= {*asked}:
            raise self.failed[asked[0]]

    def _send(self, requests: Mapping[Index, Request]) -> dict[Index, Any]:
        """Return the replies to requests about indexes on one server, or the error of each index."""
        first = self.stores[next(iter(requests))]
        replies: Iterable[Any]
        try:
            replies = first.send(merged(list(requests.values()), each=True))
        except IndexUnavailable as error:
            replies = repeat(error.__cause__)
        taken, outcomes = iter(replies), dict[Index, Any]()
        for index, request in requests.items():
            own = outcomes[index] = list(islice(taken, len(request.calls)))
            if failed := [reply for reply in own if isinstance(reply, Exception)]:
                outcomes[index] = self.stores[index].translated(failed[0])
                outcomes[index].__cause__ = failed[0]
        return outcomes
