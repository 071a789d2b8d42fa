"""Groups, and the members shown to a member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..redis import scripts
from ..redis.keys import Keys
from .query import Query, one
from .request import Call, Request

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


def count_group(keys: Keys, group: str, members: Sequence[str] = ()) -> Query[int]:
    """The number of members whose time is not over; of all, or among these."""
    return one(Call(scripts.COUNT_GROUP, (keys.group(group),), members))


def clear_group(keys: Keys, group: str) -> Query[int]:
    """Remove all members of a group."""
    return one(Call("UNLINK", (keys.group(group),)), writes=True)


def exclude_for_now(key: str, members: Sequence[str]) -> Query[None]:
    """Make a group of members that is there for a minute."""
    for at in range(0, len(members), _PART):
        words = [word for member in members[at : at + _PART] for word in ("inf", member)]
        calls = Call("ZADD", (key,), words, len(words) // 2), Call("EXPIRE", (key,), (60,))
        yield Request(calls, writes=True, atomic=True)


def remember_shown(
    keys: Keys, member: str, span: int, shown: Iterable[str | bytes] = ()
) -> Query[list[bytes]]:
    """Remember members shown to a member for ``span`` microseconds. The answer: those remembered before, in the order
    in which they were shown."""
    call = Call(scripts.REMEMBER_MEMBERS, (keys.seen(member),), (span, *shown), _REMEMBERED)
    return one(call, writes=True)


def forget_seen(keys: Keys, member: str) -> Query[int]:
    """Forget the members that were shown to a member."""
    return one(Call("UNLINK", (keys.seen(member),)), writes=True)
