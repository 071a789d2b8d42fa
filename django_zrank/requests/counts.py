"""Counts of members."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from .. import scripts
from ..facets import Facet
from ..keys import Keys
from .pages import PageAt
from .request import Call, Request
from .view import View

__all__ = ["CountFacet", "Size"]

_PAGE: Final = 1000
"""Values of a facet that are read in one round trip."""


class Size(NamedTuple):
    """The number of members."""

    def request(self, view: View, keys: Keys) -> Request[int]:
        if view.ranking is None:
            return view.make(keys)
        # The script tells a ranking without members from an index that is not there.
        return view.bare(keys, "ZCARD", otherwise=PageAt(0, 0), then=lambda page: page.size)


class CountFacet(NamedTuple):
    """The number of members that have each value of a facet, by the names of the values' rankings."""

    facet: Facet

    covered: str = ""
    """The beginning of the names of a composite facet's rankings that hold the same members. There are as many as
    values; members would have to be counted one by one."""

    def request(self, view: View, keys: Keys) -> Request[dict[bytes, int]]:
        own = f"{self.facet.name}:"
        if self.covered or not view.scope.clauses:
            return self._pages(keys, self.covered or own, {}).then(partial(_renamed, self.covered, own))
        return self._of_made(view, keys, own)

    def _pages(self, keys: Keys, names: str, found: dict[bytes, int]) -> Request[dict[bytes, int]]:
        """The values in turn, some of them a round trip."""
        after = max(found, default=b"")

        def parse(replies: list[Any]) -> dict[bytes, int] | Request[dict[bytes, int]]:
            both = found | _pairs(replies[0])
            return both if len(replies[0]) < 2 * _PAGE else self._pages(keys, names, both)

        call = Call(scripts.COUNT_FACET, (keys.root, keys.meta), (keys.generation, names, after, _PAGE))
        return Request((call,), parse)

    def _of_made(self, view: View, keys: Keys, facet: str) -> Request[dict[bytes, int]]:
        """Numbers that are counted once, and kept for some seconds."""
        made = view.intersection(keys, facet)

        def page(cursor: int | bytes) -> Call:
            return Call("HSCAN", (made,), (cursor, "COUNT", _PAGE))

        def parse(reply: Any, found: dict[bytes, int]) -> dict[bytes, int] | Request[dict[bytes, int]]:
            cursor, pairs = reply
            both = found | {name: int(number) for name, number in _pairs(pairs).items()}
            if not int(cursor):
                return both
            return Request((page(cursor),), lambda replies: parse(replies[0], both))

        return view.of_made(keys, page(0), lambda reply: parse(reply, {}), facet)


def _pairs(reply: Any) -> dict[bytes, Any]:
    """A mapping, as Redis says it or as the client has parsed it."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _renamed(covered: str, own: str, found: dict[bytes, int]) -> dict[bytes, int]:
    if not covered:
        return found
    return {own.encode() + name.removeprefix(covered.encode()): number for name, number in found.items()}
