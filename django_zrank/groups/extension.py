"""Groups, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ..checks import error
from ..extension import Extension
from ..queries.request import Call
from ..redis.keys import Keys
from . import LEAVE_GROUP, Grouping
from .keys import group_keys

__all__ = ["Groups"]


class Groups(Extension[Grouping[Any]]):
    needs = ("model", "facets")

    def check(self, index: Grouping[Any]) -> Iterator[CheckMessage]:
        try:
            index.counted(index.group_counts)
        except ValueError as raised:
            hint = 'Facets of the index, each as it is declared: group_counts = ("region", ("region", "platform")).'
            yield error(type(index), f".{raised}", hint, "zrank.E048")

    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        """Return the call that removes a member from a group and from its counts, for each of the three keys: some may
        have been evicted. Or from those that were shown to others; those that were shown to it go as a whole."""
        kind = keys.kind_of(key)
        if kind == "remembered":
            is_own = key == keys.remembered(member)
            return Call("UNLINK", (key,)) if is_own else Call("ZREM", (key,), (member,))
        if kind != "group":
            return None
        name = key.removeprefix(keys.group("")).partition(":")[0]
        return Call(LEAVE_GROUP, group_keys(keys, name), (member,))
