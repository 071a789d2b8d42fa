"""The ranking that a question is about, as scripts are told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from .. import scripts
from ..codec.layout import PLAIN, Layout
from ..filters import Scope
from ..keys import Keys
from .request import Call, Question, Request, Swapped

__all__ = ["ALL", "METHODS", "View"]

Answer = TypeVar("Answer")

_KEPT: Final = 5
"""Seconds for which the intersection of several filters is kept: answers may be as old."""

METHODS: Final = ("ordinal", "competition", "dense")
"""The ranking methods."""

ALL: Final = Scope()
"""Every member of an index."""


@dataclass(frozen=True)
class View:
    """Members of an index, and their order."""

    LIMIT: ClassVar[int] = 100_000
    """The most members that the smallest of several filters may have: more would block the server too long."""

    layout: Layout
    scope: Scope = ALL

    reverse: bool = False
    """True if a higher score ranks better."""

    method: str = "ordinal"
    """The ranking method."""

    @cached_property
    def ranking(self) -> str | None:
        """The name of the one ranking that holds exactly these members, '' for all; None where there is none."""
        return self.scope.ranking

    @cached_property
    def is_plain(self) -> bool:
        """True if these are all members of an index, bare primary keys, and their rank is their position."""
        return self.layout == PLAIN and self.ranking == "" and self.method == "ordinal"

    @cached_property
    def order(self) -> tuple[int, int, str, str]:
        """The layout and the order, as scripts take them."""
        return (self.layout.width, int(self.layout.memberships), "1" if self.reverse else "0", self.method)

    def read(
        self,
        keys: Keys,
        script: scripts.Script,
        arguments: Sequence[Any],
        parse: Callable[[Any], Answer | Request[Answer]],
        *others: str,
        writes: bool = False,
    ) -> Request[Answer]:
        """A request for what a script says of these members; ``others``: further keys of it."""
        if self.ranking is None:
            second = Call(script, (self._intersection(keys), keys.root, keys.meta, *others), arguments)
            calls = (self.intersect(keys), second)
            return Request(calls, lambda replies: parse(replies[1]), writes=True, atomic=True)
        call = Call(script, (keys.ranking(self.ranking), keys.root, keys.meta, *others), arguments)
        return Request((call,), lambda replies: parse(replies[0]), writes)

    def bare(
        self,
        keys: Keys,
        command: str,
        *arguments: Any,
        otherwise: Question[Any],
        then: Callable[[Any], Answer],
    ) -> Request[Answer]:
        """A request for what a plain command says of a ranking.

        The key of all members goes with its generation, so what is found there is live. Where nothing is, the answer is
        what ``then`` makes of the answer to another question. Rankings of facets go a moment later than their
        generation, so its name is compared.
        """
        call = Call(command, (keys.ranking(self.ranking or ""),), arguments)
        live = (Call("HGET", (keys.meta,), ("generation",)),) if self.ranking else ()

        def parse(replies: list[Any]) -> Answer | Request[Answer]:
            if live:
                if (replies[1] or b"").decode() != keys.generation:
                    raise Swapped
                return replies[0]  # type: ignore[no-any-return]
            found = replies[0] if command != "ZCARD" else replies[0] or None
            return otherwise.request(self, keys).then(then) if found is None else found

        return Request((call, *live), parse)

    def intersect(self, keys: Keys) -> Call:
        """The call that intersects several filters."""
        arguments = (keys.generation, *map(int, self.layout), str(self.scope), self.LIMIT, _KEPT)
        where = (self._intersection(keys), keys.root, keys.meta, *self.tested(keys))
        return Call(scripts.INTERSECT, where, arguments)

    def _intersection(self, keys: Keys) -> str:
        return keys.intersection("\0".join((str(self.scope), *self.tested(keys))))

    def tested(self, keys: Keys) -> list[str]:
        """The keys that the clauses of the scope are about."""
        return [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in self.scope.clauses
            for name in clause.names
        ]
