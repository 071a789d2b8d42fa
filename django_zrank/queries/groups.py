"""Groups, and the members shown to a member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..redis import scripts
from ..redis.keys import Keys
from .query import Query, one
from .request import Call

__all__ = [
    "CLAIMED",
    "add_to_group",
    "claim_from_group",
    "clear_group",
    "count_group",
    "forget_seen",
    "read_group",
    "remember_shown",
    "remove_from_group",
]

_PART: Final = 500
"""Members that are added, removed or read in one round trip, and the most expired ones that it removes."""

CLAIMED: Final = 500
"""The most members of a claim, which is one round trip: what was claimed before a failure would be lost."""


def add_to_group(keys: Keys, group: str, members: Sequence[str], lifetime: float) -> Query[int]:
    """Add primary keys for a time in microseconds. The answer: the number that were not in the group."""
    return _change(keys, group, members, lifetime)


def remove_from_group(keys: Keys, group: str, members: Sequence[str]) -> Query[int]:
    """Remove primary keys. The answer: the number that were in the group."""
    return _change(keys, group, members, "")


def _change(keys: Keys, group: str, members: Sequence[str], lifetime: float | str) -> Query[int]:
    each = list(dict.fromkeys(members))
    changed = 0
    for at in range(0, len(each), _PART):
        part = each[at : at + _PART]
        call = Call(scripts.CHANGE_GROUP, (keys.group(group),), (lifetime, _PART, *part), 5 * len(part))
        changed += yield from one(call, writes=True)
    return changed


def claim_from_group(keys: Keys, group: str, members: Sequence[str]) -> Query[list[bytes]]:
    """Remove primary keys. The answer: those that were in the group. Never sent twice."""
    return one(
        Call(scripts.CLAIM_MEMBERS, (keys.group(group),), members, 5 * len(members)), writes=True, once=True
    )


def count_group(keys: Keys, group: str, members: Sequence[str] = ()) -> Query[int]:
    """The number of members whose time is not over; of all, or among these."""
    return one(Call(scripts.COUNT_GROUP, (keys.group(group),), members))


def read_group(keys: Keys, group: str, cursor: bytes) -> Query[list[bytes]]:
    """Read some members from a cursor on, ``b"0"`` at first. The answer: the next cursor, ``b"0"`` after the last
    members, then the members, some of which an earlier answer may have had."""
    return one(Call(scripts.READ_GROUP, (keys.group(group),), (cursor, _PART)))


def clear_group(keys: Keys, group: str) -> Query[int]:
    """Remove all members of a group."""
    return one(Call("UNLINK", (keys.group(group),)), writes=True)


def remember_shown(keys: Keys, member: str, span: int, shown: Sequence[str | bytes]) -> Query[None]:
    """Remember members shown to a member for ``span`` microseconds."""
    return one(
        Call(scripts.REMEMBER_MEMBERS, (keys.seen(member),), (span, *shown), 3 * len(shown)), writes=True
    )


def forget_seen(keys: Keys, member: str) -> Query[int]:
    """Forget the members that were shown to a member."""
    return one(Call("UNLINK", (keys.seen(member),)), writes=True)
