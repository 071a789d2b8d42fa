"""Numbers of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import scripts
from ..facets import Facet
from ..keys import Keys
from .pages import PageAt
from .request import Request
from .view import ALL, View

__all__ = ["CountFacet", "Size"]


class Size(NamedTuple):
    """The number of members."""

    def request(self, view: View, keys: Keys) -> Request[int]:
        if view.ranking is None:
            return Request((view.intersect(keys),), lambda replies: replies[0], writes=True)
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
        found = self.covered or own
        if self.covered:
            view = View(view.layout, ALL)

        def parse(reply: Sequence[Any]) -> dict[bytes, int]:
            names = (own.encode() + name.removeprefix(found.encode()) for name in reply[::2])
            return dict(zip(names, reply[1::2], strict=True))

        return view.read(
            keys, scripts.COUNT_FACET, (keys.generation, view.layout.width, found, view.LIMIT), parse
        )
