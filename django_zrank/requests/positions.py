"""Look-ups of members: ranks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from .. import scripts
from ..keys import Keys
from .request import FEW, Request, in_turn
from .view import View

__all__ = ["BarePosition", "BareScore", "Locate", "Location", "Locations"]

_CHUNK: Final = 100
"""Members that are looked up in one round trip."""


class Location(NamedTuple):
    position: int
    """The number of members before it."""

    before: int
    """Its rank less 1: the members or values that rank better, by the ranking method."""

    stored: bytes
    score: float


class Locations(NamedTuple):
    size: int

    found: list[Location | None]
    """The location of each member, None for one that is not ranked."""


class Locate(NamedTuple):
    """Locations of members. One round trip for 100 of them, or for 25 if ranks are searched for among ties."""

    members: Sequence[str]

    sort_keys: Sequence[tuple[float, bytes]] = ()
    """The sort key with which each was found: its score and stored form. Saves a round trip over shards, which count
    the members before these sort keys; otherwise the members are looked up anyway."""

    checked: bool = False
    """True to look the members up unless all of them still have these sort keys."""

    def request(self, view: View, keys: Keys) -> Request[Locations]:
        size = _CHUNK // 4 if view.searches_ties else _CHUNK

        def chunk(first: int) -> Request[Locations]:
            members = self.members[first : first + size]
            arguments = (keys.generation, *view.order, *members)
            cost = len(members) * (40 if view.searches_ties else 14)
            located = view.read(keys, scripts.READ_RANKS, arguments, _parse, cost)
            return located._replace(light=len(members) <= FEW and not view.searches_ties)

        return in_turn([chunk(first) for first in range(0, len(self.members) or 1, size)]).then(_joined)


class BarePosition(NamedTuple):
    """The number of members before a member; None if it is not ranked. For bare primary keys in one ranking."""

    member: str

    sort_key: tuple[float, bytes] | None = None
    """Its sort key, if the caller knows it (see ``Locate``)."""

    def request(self, view: View, keys: Keys) -> Request[int | None]:
        command = "ZREVRANK" if view.reverse else "ZRANK"
        # Unlike the command, the script distinguishes an unranked member from a missing index.
        return view.bare(keys, command, self.member, otherwise=Locate([self.member]), then=_one("position"))


class BareScore(NamedTuple):
    """The score of a member; None if it is not ranked. For bare primary keys in one ranking."""

    member: str

    def request(self, view: View, keys: Keys) -> Request[float | None]:
        return view.bare(keys, "ZSCORE", self.member, otherwise=Locate([self.member]), then=_one("score"))


def _joined(chunks: list[Locations]) -> Locations:
    return Locations(chunks[-1].size, [one for chunk in chunks for one in chunk.found])


def _parse(reply: Any) -> Locations:
    size, *found = reply
    return Locations(size, [one and Location(one[0], one[1], one[2], float(one[3])) for one in found])


def _one(attribute: str) -> Callable[[Locations], Any]:
    """A function from the location of one member to an attribute of it; None if the member is not ranked."""
    return lambda locations: getattr(locations.found[0], attribute, None)
