"""Counts of members."""

from __future__ import annotations

from typing import NamedTuple

from ..codec.facets import Facet
from ..redis.keys import Keys
from .pages import PageAt
from .steps import Steps
from .view import View

__all__ = ["CountFacet", "Size"]


class Size(NamedTuple):
    """The number of members."""

    def steps(self, view: View, keys: Keys) -> Steps[int]:
        # Unlike ZCARD, the script distinguishes an empty ranking from a missing index.
        return view.plain_command(keys, "ZCARD", otherwise=PageAt(0, 0), then=lambda page: page.size)


class CountFacet(NamedTuple):
    """The number of members with each value of a facet, by the names of the values' rankings."""

    facet: Facet

    covered: str = ""
    """The prefix of a composite facet's rankings with the same members. Reading one ranking per value is cheaper than
    counting members one by one."""

    def steps(self, view: View, keys: Keys) -> Steps[dict[bytes, int]]:
        return view.count_facet(keys, f"{self.facet.name}:", self.covered)
