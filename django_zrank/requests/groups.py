"""Groups, and the members shown to a member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from .. import scripts
from ..keys import Keys
from .request import Call, Request, in_turn

__all__ = [
    "add_to_group",
    "clear_group",
    "count_group",
    "exclude_for_now",
    "forget_seen",
    "remember_shown",
    "remove_from_group",
]

_PART: Final = 500
"""Members that are added or removed in one round trip, and the most expired ones that it removes."""


_REMEMBERED: Final = 700
"""Microseconds that it takes to read up to 1,000 members that were shown before."""


def add_to_group(keys: Keys, group: str, members: Sequence[str], lifetime: float) -> Request[int]:
    """Add primary keys for a time in microseconds. The answer: the number that were not in the group."""
    return _change(keys, group, members, lifetime)


def remove_from_group(keys: Keys, group: str, members: Sequence[str]) -> Request[int]:
    """Remove primary keys. The answer: the number that were in the group."""
    return _change(keys, group, members, "")


def _change(keys: Keys, group: str, members: Sequence[str], lifetime: float | str) -> Request[int]:
    each = list(dict.fromkeys(members))
    parts = [each[at : at + _PART] for at in range(0, len(each), _PART)]
    key = keys.group(group)
    calls = [Call(scripts.CHANGE_GROUP, (key,), (lifetime, _PART, *part), 5 * len(part)) for part in parts]
    return in_turn([Request((call,), _last, writes=True) for call in calls]).then(sum)


def count_group(keys: Keys, group: str, members: Sequence[str] = ()) -> Request[int]:
    """The number of members whose time is not over; of all, or among these."""
    return Request((Call(scripts.COUNT_GROUP, (keys.group(group),), members),), _last)


def clear_group(keys: Keys, group: str) -> Request[int]:
    """Remove all members of a group. Its log is removed too, so that intersections are made again."""
    key = keys.group(group)
    return Request((Call("UNLINK", (key, keys.changes(key))),), _last, writes=True)


def exclude_for_now(key: str, members: Sequence[str]) -> Request[list[int]]:
    """Make a group of members that is there for a minute."""
    parts = [members[at : at + _PART] for at in range(0, len(members), _PART)]
    words = [[word for member in part for word in ("inf", member)] for part in parts]
    calls = [Call("ZADD", (key,), part, len(part) // 2) for part in words]
    kept = Call("EXPIRE", (key,), (60,))
    return in_turn([Request((call, kept), len, writes=True, atomic=True) for call in calls])


def remember_shown(
    keys: Keys, member: str, span: int, shown: Iterable[str | bytes] = ()
) -> Request[list[bytes]]:
    """Remember members shown to a member for ``span`` microseconds. The answer: those remembered before, in the order
    in which they were shown."""
    call = Call(scripts.REMEMBER_MEMBERS, (keys.seen(member),), (span, *shown), _REMEMBERED)
    return Request((call,), _last, writes=True)


def forget_seen(keys: Keys, member: str) -> Request[int]:
    """Forget the members that were shown to a member."""
    return Request((Call("UNLINK", (keys.seen(member),)),), _last, writes=True)


def _last(replies: list[Any]) -> Any:
    return replies[-1]
