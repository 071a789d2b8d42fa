"""Groups, and the members shown to a member."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from .. import scripts
from ..keys import Keys
from .request import Call, Request, in_turn

__all__ = ["add_to_group", "clear_group", "count_group", "expiries", "forget_seen", "remove_from_group"]

_PART: Final = 500
"""Members that are added or removed in one round trip, and the most expired ones that it removes."""


def add_to_group(keys: Keys, group: str, members: Sequence[str], until: float, now: float) -> Request[int]:
    """Add primary keys until a time in microseconds. The answer: the number that were not in the group ``now``."""
    return _change(keys, group, members, "inf" if until == inf else until, now)


def remove_from_group(keys: Keys, group: str, members: Sequence[str], now: float) -> Request[int]:
    """Remove primary keys. The answer: the number that were in the group ``now``."""
    return _change(keys, group, members, "", now)


def _change(keys: Keys, group: str, members: Sequence[str], until: float | str, now: float) -> Request[int]:
    each = list(dict.fromkeys(members))
    parts = [each[at : at + _PART] for at in range(0, len(each), _PART)]
    calls = [Call(scripts.CHANGE_GROUP, (keys.group(group),), (now, until, _PART, *part)) for part in parts]
    return in_turn([Request((call,), _last, writes=True) for call in calls]).then(sum)


def count_group(keys: Keys, group: str, now: float) -> Request[int]:
    """The number of members that belong to a group after a time in microseconds."""
    return Request((Call("ZCOUNT", (keys.group(group),), (f"({now!r}", "+inf")),), _last)


def expiries(keys: Keys, group: str, members: Sequence[str]) -> Request[list[float | None]]:
    """The expiry of each member in microseconds; None for one that doesn't belong to the group."""
    return Request((Call("ZMSCORE", (keys.group(group),), members),), _last)


def clear_group(keys: Keys, group: str) -> Request[int]:
    """Remove all members of a group. Its log is removed too, so that intersections are made again."""
    key = keys.group(group)
    return Request((Call("UNLINK", (key, keys.changes(key))),), _last, writes=True)


def forget_seen(keys: Keys, member: str) -> Request[int]:
    """Forget the members that were shown to a member."""
    return Request((Call("UNLINK", (keys.seen(member),)),), _last, writes=True)


def _last(replies: list[Any]) -> Any:
    return replies[-1]
