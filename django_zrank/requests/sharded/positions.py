"""Look-ups of members over shards: a member's own shard returns its place, then all shards count what is before it."""

from __future__ import annotations

from collections.abc import Sequence

from ..positions import BarePosition, Locate, Location, Locations
from ..request import Request, merge
from ..view import View
from .places import Counted, Place, count_places
from .shards import Shards

__all__ = ["bare_position", "find_places", "locate"]


def locate(question: Locate, view: View, shards: Shards, *, again: bool = True) -> Request[Locations]:
    """Locations of members. Two round trips for 25 of them; one if their places are known. With methods other than
    ordinal, positions only order these members.

    ``again``: begin again if a member has moved between the two.
    """
    ordinal, again = view.method == "ordinal", again and (question.checked or not question.places)

    def count(places: Sequence[Place | None]) -> Request[Locations]:
        counting = list(dict.fromkeys(filter(None, places)))

        def answer(counted: Counted) -> Locations | Request[Locations]:
            if again and counted.here < len(counting):
                return locate(Locate(question.members), view, shards, again=bool(question.places))
            order = {place: at for at, place in enumerate(sorted(counting, reverse=view.reverse))}
            found = {
                place: Location(before if ordinal else order[place], before, place.stored, place.score)
                for place, before in zip(counting, counted.before, strict=True)
            }
            return Locations(counted.size, [found[place] if place else None for place in places])

        return count_places(counting, view, shards).then(answer)

    if question.places or not question.members:
        return count([*map(Place._make, question.places)])
    looked_up = find_places(question.members, view, shards)
    return looked_up.then(lambda places: count([*map(places.get, question.members)]))


def bare_position(question: BarePosition, view: View, shards: Shards) -> Request[int | None]:
    """The number of members before a member; None if it is not ranked."""
    places = [question.place] if question.place else []
    return locate(Locate([question.member], places, checked=True), view, shards).then(
        lambda locations: locations.found[0] and locations.found[0].position
    )


def find_places(members: Sequence[str], view: View, shards: Shards) -> Request[dict[str, Place]]:
    """Look up the places of those members that are ranked."""
    split = shards.split(dict.fromkeys(members))
    view = view.by("ordinal")
    requests = [Locate(own).request(view, shards.keys[shard]) for shard, own in split.items()]

    def joined(answers: list[Locations]) -> dict[str, Place]:
        return {
            member: Place(location.score, location.stored)
            for own, (_, found) in zip(split.values(), answers, strict=True)
            for member, location in zip(own, found, strict=True)
            if location
        }

    return merge(requests, spread=True).then(joined)
