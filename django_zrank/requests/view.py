"""Views: members of an index in an order, and the queries that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic
from typing import Any, ClassVar, Final, TypeVar

from .. import scripts
from ..codec.layout import PLAIN, Layout
from ..conf import get_settings
from ..exceptions import FilterNotReady
from ..filters import Scope
from ..keys import Keys
from .pace import TARGET, Pace
from .query import Query, Question, as_query, one
from .request import Call, Request, Swapped

__all__ = ["ALL", "METHODS", "View"]

Answer = TypeVar("Answer")

_KEPT: Final = 5
"""Seconds for which the intersection of several filters is kept: answers may be as old."""

_WAIT: Final = 0.02
"""Seconds after which a client asks again for an intersection that another one is making."""

_LEAST: Final = 125
"""The fewest look-ups of a piece of an intersection."""

EVERY: Final = ("-inf", "+inf")
"""Every score."""

METHODS: Final = ("ordinal", "competition", "dense")

ALL: Final = Scope()


@dataclass(frozen=True)
class View:
    """Members of an index, and their order."""

    PACE: ClassVar[Pace] = Pace()
    """The look-ups of one piece of an intersection, each a call of its own: as many as the last ones allow."""

    layout: Layout
    scope: Scope = ALL

    reverse: bool = False
    """True if a higher score ranks better."""

    method: str = "ordinal"

    shards: int = 1
    """The number of shards that are asked at once, and share the first piece of an intersection."""

    scan: int | None = None
    """The most members of the smallest of several filters, below ``ZRANK["MAX_SCAN"]``, and the most values of a facet
    in counts; None for no bound of this view."""

    seconds: float | None = None
    """Seconds to wait for an intersection, below ``ZRANK["FILTER_TIMEOUT"]``; None for no bound of this view."""

    @property
    def limit(self) -> int:
        """The bound in force on the members of the smallest of several filters."""
        ours = get_settings().max_scan
        return ours if self.scan is None else min(ours, self.scan)

    @property
    def patience(self) -> float:
        """The bound in force on the seconds to wait for an intersection."""
        ours = get_settings().filter_timeout
        return ours if self.seconds is None else min(ours, self.seconds)

    def by(self, method: str | None) -> View:
        """The same members, ranked by another method where one is given."""
        return self if method is None else replace(self, method=method)

    @cached_property
    def ranking(self) -> str | None:
        """The name of the one ranking that holds exactly these members, '' for all; None if there is none."""
        return self.scope.ranking

    @cached_property
    def is_plain(self) -> bool:
        """True if these are all members of an index, bare primary keys, and their rank is their position."""
        return self.layout == PLAIN and self.ranking == "" and self.method == "ordinal"

    @cached_property
    def searches_ties(self) -> bool:
        """True if a rank takes a search among the members of a score."""
        return self.method == "competition" and self.layout.width > 0

    @cached_property
    def order(self) -> tuple[int, int, str, str]:
        """The layout and the order, as scripts take them."""
        return (self.layout.width, int(self.layout.memberships), "1" if self.reverse else "0", self.method)

    def read(
        self,
        keys: Keys,
        script: scripts.Script,
        arguments: Sequence[Any],
        cost: int = 0,
        *,
        light: bool = False,
    ) -> Query[Any]:
        """Run a script on the ranking of these members; ``cost``: that of the call."""
        if self.ranking is None:
            call = Call(script, (self.intersection(keys), keys.root, keys.meta), arguments, cost)
            return (yield from as_query(self.of_made(keys, call, lambda reply: reply)))
        call = Call(script, (keys.ranking(self.ranking), keys.root, keys.meta), arguments, cost)
        return (yield from one(call, light=light))

    def bare(
        self,
        keys: Keys,
        command: str,
        *arguments: Any,
        otherwise: Question[Any],
        then: Callable[[Any], Answer],
    ) -> Query[Answer]:
        """Send a plain command to a ranking.

        The key of all members goes with its generation, so what is found there is live. Where nothing is, the answer is
        what ``then`` makes of the answer to another question. Rankings of facets go a moment later than their
        generation, so its name is compared.
        """
        call = Call(command, (keys.ranking(self.ranking or ""),), arguments)
        live = (Call("HGET", (keys.meta,), ("generation",)),) if self.ranking else ()
        replies = yield Request((call, *live), list, light=True)
        if live:
            if (replies[1] or b"").decode() != keys.generation:
                raise Swapped
            return replies[0]  # type: ignore[no-any-return]
        found = replies[0] if command != "ZCARD" else replies[0] or None
        return then((yield from otherwise.query(self, keys))) if found is None else found

    def of_made(
        self,
        keys: Keys,
        second: Call,
        parse: Callable[[Any], Answer | Request[Answer]],
        facet: str = "",
        scores: tuple[str, str] = EVERY,
        until: float | None = None,
    ) -> Request[Answer]:
        """A request that makes a call about an intersection, after making that if there is none; ``until``: the time by
        the monotonic clock after which it raises ``FilterNotReady``."""
        deadline = self._deadline() if until is None else until

        def parse_both(replies: list[Any]) -> Answer | Request[Answer]:
            made, reply = replies
            if made[0] == b"made":
                return parse(reply)
            going_on = self._going_on(made, keys, facet, scores, deadline)
            return going_on.then(lambda size: self.of_made(keys, second, parse, facet, scores, deadline))

        calls = (self._intersect(keys, facet, scores), second)
        return Request(calls, parse_both, writes=True, atomic=True)

    def make(
        self,
        keys: Keys,
        facet: str = "",
        scores: tuple[str, str] = EVERY,
        step: bytes = b"",
        delay: float = 0.0,
        until: float | None = None,
    ) -> Request[int]:
        """Make the intersection of several filters, one piece a round trip, or wait until another client has made it.
        The answer is its size.

        ``facet``: the beginning of the names of a facet's rankings: make the numbers of members by its values instead.
        ``scores``: the lowest and the highest score that belong to it. ``until``: as in ``of_made()``.
        """
        deadline = self._deadline() if until is None else until

        def parse(replies: list[Any]) -> int | Request[int]:
            (made,) = replies
            return made[1] if made[0] == b"made" else self._going_on(made, keys, facet, scores, deadline)

        return Request((self._intersect(keys, facet, scores, step),), parse, writes=True, delay=delay)

    def _deadline(self) -> float:
        return monotonic() + self.patience

    def _going_on(
        self, reply: Any, keys: Keys, facet: str, scores: tuple[str, str], until: float
    ) -> Request[int]:
        if monotonic() >= until:
            bound = (
                'ZRANK["FILTER_TIMEOUT"]' if self.patience == get_settings().filter_timeout else "within()"
            )
            raise FilterNotReady(
                f"no facet covers these filters, and they aren't computed after {self.patience:g} seconds ({bound})"
            )
        if reply[0] == b"wait":
            return self.make(keys, facet, scores, delay=_WAIT, until=until)
        _, step, spent, microseconds = reply
        self.PACE.note(spent, microseconds / 1e6)
        return self.make(keys, facet, scores, step=step, until=until)

    def _intersect(self, keys: Keys, facet: str, scores: tuple[str, str], step: bytes = b"") -> Call:
        made, tested = self.intersection(keys, facet, scores), self.tested(keys)
        budget = self.PACE.budget
        # The first piece finds most of them made.
        work = budget if step else min(budget, max(_LEAST, budget // self.shards))
        where = (
            made,
            keys.making(made),
            keys.intersections,
            keys.root,
            keys.recent,
            keys.meta,
            keys.pending,
            *tested,
        )
        how = (
            keys.generation,
            *map(int, self.layout),
            str(self.scope),
            facet,
            *scores,
            self.limit,
            get_settings().max_combinations,
            get_settings().max_combination_bytes,
            _KEPT,
            work,
        )
        cost = int(TARGET * 1e6 * work / budget) + 30 * len(tested)
        return Call(scripts.INTERSECT, where, (*how, step), cost)

    def intersection(self, keys: Keys, facet: str = "", scores: tuple[str, str] = EVERY) -> str:
        """The key of the intersection that ``make()`` makes."""
        return keys.intersection(facet, *scores, str(self.scope), *self.tested(keys))

    def tested(self, keys: Keys) -> list[str]:
        """The keys of the sets that the clauses of the scope name."""
        return [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in self.scope.clauses
            for name in clause.names
        ]
