"""Counts of members."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .. import scripts
from ..facets import Facet
from ..keys import Keys
from .pages import PageAt
from .request import Call, Request
from .view import View

__all__ = ["CountFacet", "Size"]

_PAGE: Final = 1000
"""The values of a facet that are read in one round trip."""


class Size(NamedTuple):
    """The number of members."""

    def request(self, view: View, keys: Keys) -> Request[int]:
        if view.ranking is None:
            return view.make(keys)
        # Unlike ZCARD, the script distinguishes an empty ranking from a missing index.
        return view.bare(keys, "ZCARD", otherwise=PageAt(0, 0), then=lambda page: page.size)


class CountFacet(NamedTuple):
    """The number of members with each value of a facet, by the names of the values' rankings."""

    facet: Facet

    covered: str = ""
    """The prefix of a composite facet's rankings with the same members. Reading one ranking per value is cheaper than
    counting members one by one."""

    def request(self, view: View, keys: Keys) -> Request[dict[bytes, int]]:
        own = f"{self.facet.name}:"
        if self.covered or not view.scope.clauses:
            names = (self.covered or own).encode()
            return self._pages(keys, names, {}).then(
                lambda found: {
                    own.encode() + name.removeprefix(names): count for name, count in found.items()
                }
            )
        return self._of_made(view, keys, own)

    def _pages(self, keys: Keys, names: bytes, found: dict[bytes, int]) -> Request[dict[bytes, int]]:
        """Count the members of all values, in pages."""
        after = max(found, default=b"")

        def parse(replies: list[Any]) -> dict[bytes, int] | Request[dict[bytes, int]]:
            (reply,) = replies
            both = found | dict(zip(reply[::2], reply[1::2], strict=True))
            return both if len(reply) < 2 * _PAGE else self._pages(keys, names, both)

        call = Call(scripts.COUNT_FACET, (keys.root, keys.meta), (keys.generation, names, after, _PAGE))
        return Request((call,), parse)

    def _of_made(self, view: View, keys: Keys, facet: str) -> Request[dict[bytes, int]]:
        """Read numbers that are counted once, and kept for some seconds."""
        made = view.intersection(keys, facet)

        def page(cursor: int | bytes) -> Call:
            return Call("HSCAN", (made,), (cursor, "COUNT", _PAGE))

        def parse(reply: Any, found: dict[bytes, int]) -> dict[bytes, int] | Request[dict[bytes, int]]:
            cursor, pairs = reply
            both = found | {name: int(number) for name, number in pairs.items()}
            if not cursor:
                return both
            return Request((page(cursor),), lambda replies: parse(replies[0], both))

        return view.of_made(keys, page(0), lambda reply: parse(reply, {}), facet)
