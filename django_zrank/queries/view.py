"""Views: members of an index in an order, and the steps by which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, TypeVar

from ..codec.layout import PLAIN, Layout
from ..exceptions import FilterTooLarge
from ..methods import Method, method_of
from ..redis import scripts
from ..redis.keys import Keys
from .request import Call, Request, Swapped
from .steps import Question, Steps, one

__all__ = ["View"]

Answer = TypeVar("Answer")

_PAGE: Final = 500
"""The values of a facet that are read in one round trip."""

_FIRST: Final = 60
"""Those in the first one: so many that 16 indexes answer together."""

_COST: Final = 3
"""Microseconds that the server takes for a value."""

_VIEWS: Final = 1000
"""Views of rankings that are kept with what follows from them: 12 µs of a client, where a bare ZREVRANK takes 30."""

_NO_BOUND: Final = 2**53


@dataclass(frozen=True)
class View:
    """Members of an index, and their order."""

    layout: Layout
    ranking: str | None = ""
    """The name of the one ranking that holds exactly these members, '' for all; None if there is none."""

    reverse: bool = False
    """True if a higher score ranks better."""

    method: str = "ordinal"

    scan: int | None = None
    """The most members, or values of a facet, that are read to compute an answer; None for no bound of this view."""

    seconds: float | None = None
    """Seconds to wait for what has to be computed; None for no bound of this view."""

    drawing: ClassVar[Any] = None
    """The class of the draws among these members; None for the usual one."""

    @property
    def is_versioned(self) -> bool:
        """True if these members change by writes of the index alone, so that the version tells how new they are."""
        return True

    def of(self, ranking: str) -> View:
        """The members of a ranking, in the same order and within the same bounds."""
        return _of(self, ranking)

    def by(self, method: str | None) -> View:
        """The same members, ranked by another method where one is given."""
        return self if method is None else replace(self, method=method)

    @cached_property
    def takes_short_script(self) -> bool:
        """True if these are all members of an index, bare primary keys, and their rank is their position."""
        return self.layout == PLAIN and self.ranking == "" and self.method == "ordinal"

    @cached_property
    def ranks(self) -> Method:
        """The ranking method."""
        return method_of(self.method)

    @cached_property
    def searches_ties(self) -> bool:
        """True if a rank takes a search among the members of a score."""
        return self.method == "competition" and self.layout.width > 0

    @cached_property
    def order(self) -> tuple[int, int, str, str]:
        """The layout and the order, as scripts take them."""
        return (*self.layout.arguments, "1" if self.reverse else "0", self.method)

    def read(
        self,
        keys: Keys,
        script: scripts.Script,
        arguments: Sequence[Any],
        cost: int = 0,
        others: Sequence[str] = (),
        *,
        writes: bool = False,
    ) -> Steps[Any]:
        """Run a script, with the libraries of the ranking method, on the ranking of these members. ``cost``: that of
        the call; ``others``: further keys; ``writes``: true if only a primary can serve the request."""
        touched = (keys.ranking(self.ranking or ""), keys.root, keys.meta, *others)
        call = Call(script.using(self.ranks.package), touched, arguments, cost)
        return (yield from one(call, writes=writes))

    def plain_command(
        self,
        keys: Keys,
        command: str,
        *arguments: Any,
        otherwise: Question[Any],
        then: Callable[[Any], Answer],
    ) -> Steps[Answer]:
        """Send a plain command to a ranking.

        The key of all members goes with its build, so what is found there is live. Where nothing is, the answer is
        what ``then`` makes of the answer to another question. Rankings of facets go a moment later than their
        build, so its name is compared.
        """
        call = Call(command, (keys.ranking(self.ranking or ""),), arguments)
        live = (Call("HGET", (keys.meta,), ("build",)),) if self.ranking else ()
        replies = yield Request((call, *live))
        if live:
            if (replies[1] or b"").decode() != keys.build:
                raise Swapped
            return replies[0]  # type: ignore[no-any-return]
        found = replies[0] if command not in ("ZCARD", "ZRANGE") else replies[0] or None
        return then((yield from otherwise.steps(self, keys))) if found is None else found

    def count_facet(self, keys: Keys, facet: str, covered: str) -> Steps[dict[bytes, int]]:
        """Count the members with each value of a facet, by the names of the values' rankings, which begin with
        ``facet``. ``covered``: the beginning of the names of those that hold members of this view alone, if it isn't of
        all members."""
        names, most = (covered or facet).encode(), _NO_BOUND if self.scan is None else self.scan
        found: dict[bytes, int] = {}
        last, page = b"", _FIRST
        while True:
            arguments = (keys.build, names, last, page, most)
            call = Call(scripts.COUNT_FACET, (keys.root, keys.meta), arguments, _COST * page)
            values, *reply = yield from one(call)
            if values > most:
                raise FilterTooLarge(
                    f"{facet.removesuffix(':')}: there are {values:,} values to count, more than {most:,}"
                )
            found |= zip(reply[::2], reply[1::2], strict=True)
            if len(reply) < 2 * page:
                return {facet.encode() + name.removeprefix(names): count for name, count in found.items()}
            last, page = reply[-2], _PAGE


@lru_cache(_VIEWS)
def _of(view: View, ranking: str) -> View:
    return View(view.layout, ranking, view.reverse, view.method, view.scan, view.seconds)
