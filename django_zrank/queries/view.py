"""Views: members of an index in an order, and the queries that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from ..codec.filters import Scope
from ..codec.layout import PLAIN, Layout
from ..conf import get_settings
from ..redis import scripts
from ..redis.keys import Keys
from .intersections import intersection, read_intersection
from .query import Query, Question, one
from .request import Call, Request, Swapped

__all__ = ["ALL", "METHODS", "View"]

Answer = TypeVar("Answer")

METHODS: Final = ("ordinal", "competition", "dense")

ALL: Final = Scope()


@dataclass(frozen=True)
class View:
    """Members of an index, and their order."""

    layout: Layout
    scope: Scope = ALL

    reverse: bool = False
    """True if a higher score ranks better."""

    method: str = "ordinal"

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
        others: Sequence[str] = (),
        **how: bool,
    ) -> Query[Any]:
        """Run a script on the ranking of these members. ``cost``: that of the call; ``others``: further keys;
        ``how``: attributes of the request."""
        if self.ranking is None:
            key = intersection(self, keys)
            call = Call(script, (key, keys.root, keys.meta, *others), arguments, cost)
            _, (reply,) = yield from read_intersection(self, keys, key, call)
            return reply
        call = Call(script, (keys.ranking(self.ranking), keys.root, keys.meta, *others), arguments, cost)
        return (yield from one(call, **how))

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
        replies = yield Request((call, *live), light=True)
        if live:
            if (replies[1] or b"").decode() != keys.generation:
                raise Swapped
            return replies[0]  # type: ignore[no-any-return]
        found = replies[0] if command != "ZCARD" else replies[0] or None
        return then((yield from otherwise.query(self, keys))) if found is None else found

    def tested(self, keys: Keys) -> list[str]:
        """The keys of the sets that the clauses of the scope name."""
        return [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in self.scope.clauses
            for name in clause.names
        ]
