"""Counts of members."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..codec.facets import Facet
from ..exceptions import FilterTooLarge
from ..redis import scripts
from ..redis.keys import Keys
from .intersections import intersection, read_intersection
from .pages import PageAt
from .query import Query, one
from .request import Call
from .view import View

__all__ = ["CountFacet", "Size"]

_PAGE: Final = 500
"""The values of a facet that are read in one round trip."""

_FIRST: Final = 60
"""Those in the first one: so many that 16 shards answer together."""

_COST: Final = 3
"""Microseconds that the server takes for a value."""

_NO_BOUND: Final = 2**53


class Size(NamedTuple):
    """The number of members."""

    def query(self, view: View, keys: Keys) -> Query[int]:
        if view.ranking is None:
            return (yield from read_intersection(view, keys, intersection(view, keys)))[0]
        # Unlike ZCARD, the script distinguishes an empty ranking from a missing index.
        size: int = yield from view.bare(keys, "ZCARD", otherwise=PageAt(0, 0), then=lambda page: page.size)
        return size


class CountFacet(NamedTuple):
    """The number of members with each value of a facet, by the names of the values' rankings."""

    facet: Facet

    covered: str = ""
    """The prefix of a composite facet's rankings with the same members. Reading one ranking per value is cheaper than
    counting members one by one."""

    def query(self, view: View, keys: Keys) -> Query[dict[bytes, int]]:
        own = f"{self.facet.name}:"
        if view.scope.clauses and not self.covered:
            return (yield from _read_made(view, keys, own))
        names, most = (self.covered or own).encode(), _NO_BOUND if view.scan is None else view.scan
        found: dict[bytes, int] = {}
        last, page = b"", _FIRST
        while True:
            arguments = (keys.generation, names, last, page, most)
            call = Call(scripts.COUNT_FACET, (keys.root, keys.meta), arguments, _COST * page)
            values, *reply = yield from one(call)
            if values > most:
                raise FilterTooLarge(
                    f"{self.facet.name}: there are {values:,} values to count, more than {most:,}"
                )
            found |= zip(reply[::2], reply[1::2], strict=True)
            if len(reply) < 2 * page:
                return {own.encode() + name.removeprefix(names): count for name, count in found.items()}
            last, page = reply[-2], _PAGE


def _read_made(view: View, keys: Keys, facet: str) -> Query[dict[bytes, int]]:
    """Read numbers that are counted once, and kept for some seconds."""
    key = intersection(view, keys, facet)
    first = Call("HSCAN", (key,), (0, "COUNT", _PAGE))
    _, ((cursor, numbers),) = yield from read_intersection(view, keys, key, first, facet=facet)
    while cursor:
        cursor, more = yield from one(Call("HSCAN", (key,), (cursor, "COUNT", _PAGE)))
        numbers |= more
    return {name: int(number) for name, number in numbers.items()}
