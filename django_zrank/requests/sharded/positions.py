"""Look-ups of members over shards: a member's own shard returns its sort key, then all count what is before it."""

from __future__ import annotations

from collections.abc import Sequence

from ..positions import BarePosition, Locate, Location, Locations
from ..request import Request, merge
from ..view import View
from .shards import Shards
from .sort_keys import Counted, SortKey, count_before

__all__ = ["bare_position", "find_sort_keys", "locate"]


def locate(question: Locate, view: View, shards: Shards, *, again: bool = True) -> Request[Locations]:
    """Locations of members. Two round trips for 25 of them; one if their sort keys are known. With methods other than
    ordinal, positions only order these members.

    ``again``: begin again if a member has moved between the two.
    """
    ordinal, again = view.method == "ordinal", again and (question.checked or not question.sort_keys)

    def count(sort_keys: Sequence[SortKey | None]) -> Request[Locations]:
        counting = list(dict.fromkeys(filter(None, sort_keys)))

        def answer(counted: Counted) -> Locations | Request[Locations]:
            if again and counted.here < len(counting):
                return locate(Locate(question.members), view, shards, again=bool(question.sort_keys))
            order = {sort_key: at for at, sort_key in enumerate(sorted(counting, reverse=view.reverse))}
            found = {
                one: Location(before if ordinal else order[one], before, one.stored, one.score)
                for one, before in zip(counting, counted.before, strict=True)
            }
            return Locations(counted.size, [found[sort_key] if sort_key else None for sort_key in sort_keys])

        return count_before(counting, view, shards).then(answer)

    if question.sort_keys or not question.members:
        return count([*map(SortKey._make, question.sort_keys)])
    looked_up = find_sort_keys(question.members, view, shards)
    return looked_up.then(lambda sort_keys: count([*map(sort_keys.get, question.members)]))


def bare_position(question: BarePosition, view: View, shards: Shards) -> Request[int | None]:
    sort_keys = [question.sort_key] if question.sort_key else []
    return locate(Locate([question.member], sort_keys, checked=True), view, shards).then(
        lambda locations: locations.found[0] and locations.found[0].position
    )


def find_sort_keys(members: Sequence[str], view: View, shards: Shards) -> Request[dict[str, SortKey]]:
    """Look up the sort keys of those members that are ranked."""
    split = shards.split(dict.fromkeys(members))
    view = view.by("ordinal")
    requests = [Locate(own).request(view, shards.keys[shard]) for shard, own in split.items()]

    def joined(answers: list[Locations]) -> dict[str, SortKey]:
        return {
            member: SortKey(location.score, location.stored)
            for own, (_, found) in zip(split.values(), answers, strict=True)
            for member, location in zip(own, found, strict=True)
            if location
        }

    return merge(requests, spread=True).then(joined)
