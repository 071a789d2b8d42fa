"""Members by their names: ranks and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import scripts
from ..keys import Keys
from .request import Call, Request
from .view import View

__all__ = ["BarePosition", "BareScore", "Locate", "Location", "Locations"]


class Location(NamedTuple):
    """Where a member stands."""

    position: int
    """How many members stand before it, one by one."""

    before: int
    """What stands before its rank: members or values that rank better, by the ranking method."""

    stored: bytes
    score: float


class Locations(NamedTuple):
    size: int
    """Members in the ranking."""

    found: list[Location | None]
    """Where each member stands, None for one that is not ranked."""


class Locate(NamedTuple):
    """Where members stand. One round trip."""

    members: Sequence[str]

    def request(self, view: View, keys: Keys) -> Request[Locations]:
        return view.read(keys, scripts.READ_RANKS, (*view.order, *self.members), _parse)


class BarePosition(NamedTuple):
    """How many members stand before one; None where it is not ranked. Of bare primary keys in one ranking."""

    member: str

    def request(self, view: View, keys: Keys) -> Request[int | None]:
        command = "ZREVRANK" if view.reverse else "ZRANK"
        call = Call(command, (keys.ranking(view.ranking or ""),), (self.member,))

        def parse(replies: list[Any]) -> int | Request[int | None] | None:
            position: int | None = replies[0]
            if position is not None:
                return position
            # The script tells a member that is not ranked from an index that is not there.
            return Locate([self.member]).request(view, keys).then(_position)

        return Request((call,), parse)


class BareScore(NamedTuple):
    """The score of a member; None where it is not ranked. Of bare primary keys in one ranking."""

    member: str

    def request(self, view: View, keys: Keys) -> Request[float | None]:
        call = Call("ZSCORE", (keys.ranking(view.ranking or ""),), (self.member,))

        def parse(replies: list[Any]) -> float | Request[float | None] | None:
            score: float | None = replies[0]
            if score is not None:
                return score
            return Locate([self.member]).request(view, keys).then(_score)

        return Request((call,), parse)


def _parse(reply: Any) -> Locations:
    size, *found = reply
    return Locations(size, [one and Location(one[0], one[1], one[2], float(one[3])) for one in found])


def _position(locations: Locations) -> int | None:
    (location,) = locations.found
    return location and location.position


def _score(locations: Locations) -> float | None:
    (location,) = locations.found
    return location and location.score
