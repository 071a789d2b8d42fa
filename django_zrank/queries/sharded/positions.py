"""Look-ups of members over shards: a member's own shard returns its sort key, then all count what is before it."""

from __future__ import annotations

from collections.abc import Sequence

from ..positions import BarePosition, Locate, Location, Locations
from ..query import Query, together
from ..shards import Shards
from ..view import View
from .sort_keys import SortKey, count_before

__all__ = ["bare_position", "find_sort_keys", "locate"]


def locate(question: Locate, view: View, shards: Shards) -> Query[Locations]:
    """Locations of members. Two round trips for 25 of them; one if their sort keys are known. With methods other than
    ordinal, positions only order these members."""
    ordinal = view.method == "ordinal"
    sort_keys: Sequence[SortKey | None] = [*map(SortKey._make, question.sort_keys)]
    # Once more if a member has moved between the two round trips, and if sort keys that were given are old.
    attempts = 1 if sort_keys and not question.checked else 3 if sort_keys else 2
    while True:
        if question.members and not sort_keys:
            found = yield from find_sort_keys(question.members, view, shards)
            sort_keys = [*map(found.get, question.members)]
        counting = list(dict.fromkeys(filter(None, sort_keys)))
        counted = yield from count_before(counting, view, shards)
        attempts -= 1
        if counted.here == len(counting) or not attempts:
            break
        sort_keys = ()
    order = {sort_key: at for at, sort_key in enumerate(sorted(counting, reverse=view.reverse))}
    locations = {
        one: Location(before if ordinal else order[one], before, one.stored, one.score)
        for one, before in zip(counting, counted.before, strict=True)
    }
    return Locations(counted.size, [sort_key and locations[sort_key] for sort_key in sort_keys])


def bare_position(question: BarePosition, view: View, shards: Shards) -> Query[int | None]:
    sort_keys = [question.sort_key] if question.sort_key else []
    _, (found,) = yield from locate(Locate([question.member], sort_keys, checked=True), view, shards)
    return found and found.position


def find_sort_keys(members: Sequence[str], view: View, shards: Shards) -> Query[dict[str, SortKey]]:
    """Look up the sort keys of those members that are ranked."""
    split = shards.split(dict.fromkeys(members))
    view = view.by("ordinal")
    queries = [Locate(own).query(view, shards.keys[shard]) for shard, own in split.items()]
    answers = yield from together(queries, spread=True)
    return {
        member: SortKey(location.score, location.stored)
        for own, (_, found) in zip(split.values(), answers, strict=True)
        for member, location in zip(own, found, strict=True)
        if location
    }
