"""Look-ups of members: ranks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ..redis import scripts
from ..redis.keys import Keys
from .steps import Steps
from .view import View

__all__ = [
    "Locate",
    "Location",
    "Locations",
    "Placement",
    "Placements",
    "PositionByCommand",
    "ScoreByCommand",
]

_CHUNK: Final = 100
"""Members that are looked up in one round trip."""


_RANKINGS: Final = 50
"""Rankings of a member that are read in one round trip."""


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
    """The sort key with which each was found: its score and stored form. Saves a round trip if several indexes hold the
    members, and count those before these sort keys; otherwise the members are looked up anyway."""

    checked: bool = False
    """True to look the members up unless all of them still have these sort keys."""

    def steps(self, view: View, keys: Keys) -> Steps[Locations]:
        size = _CHUNK // 4 if view.searches_ties else _CHUNK
        total, located = 0, list[Location | None]()
        for first in range(0, len(self.members) or 1, size):
            members = self.members[first : first + size]
            arguments = (keys.build, *view.order, *members)
            cost = len(members) * (40 if view.searches_ties else 14)
            total, *found = yield from view.read(keys, scripts.READ_RANKS, arguments, cost)
            located += [each and Location(each[0], each[1], each[2], float(each[3])) for each in found]
        return Locations(total, located)


class Placement(NamedTuple):
    """A member in one of its rankings."""

    ranking: str
    """The name of the ranking."""

    size: int
    location: Location

    better: int
    """The number of members that are better in a criterion, whatever the ranking method."""


class Placements(NamedTuple):
    """The placements of a member: in the ranking of a view, then in those of its values of some ``facets``, by name;
    none if it is not in the first one. One round trip for 50 of them."""

    member: str
    facets: Sequence[str] = ()

    def steps(self, view: View, keys: Keys) -> Steps[list[Placement]]:
        found: list[Placement] = []
        skip, number = 0, 1
        while skip < number:
            arguments = (keys.build, *view.order, self.member, skip, _RANKINGS, *self.facets)
            cost = min(_RANKINGS, 1 + len(self.facets)) * 40
            reply = yield from view.read(keys, scripts.READ_PLACEMENTS, arguments, cost)
            if reply[0] == b"not ranked":
                break
            number, stored, score, *placed = reply
            for name, size, position, before, better in placed:
                location = Location(position, before, stored, float(score))
                found.append(Placement(name.decode() or view.ranking or "", size, location, better))
            skip += _RANKINGS
        return found


class PositionByCommand(NamedTuple):
    """The number of members before a member; None if it is not ranked. For bare primary keys in one ranking."""

    member: str

    sort_key: tuple[float, bytes] | None = None
    """Its sort key, if the caller knows it (see ``Locate``)."""

    def steps(self, view: View, keys: Keys) -> Steps[int | None]:
        command = "ZREVRANK" if view.reverse else "ZRANK"
        # Unlike the command, the script distinguishes an unranked member from a missing index.
        return view.plain_command(
            keys, command, self.member, otherwise=Locate([self.member]), then=_one("position")
        )


class ScoreByCommand(NamedTuple):
    """The score of a member; None if it is not ranked. For bare primary keys in one ranking."""

    member: str

    def steps(self, view: View, keys: Keys) -> Steps[float | None]:
        return view.plain_command(
            keys, "ZSCORE", self.member, otherwise=Locate([self.member]), then=_one("score")
        )


def _one(attribute: str) -> Callable[[Locations], Any]:
    """A function from the location of one member to an attribute of it; None if the member is not ranked."""
    return lambda locations: getattr(locations.found[0], attribute, None)
