"""The members that were shown to one, as draws pass them over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from ..queries.request import Call
from ..queries.steps import Steps, one
from ..redis.keys import Keys
from ..redis.scripts import Script

__all__ = ["KIND", "Memory", "forget_remembered", "remembered_key", "remembering"]

REMEMBER_MEMBERS: Final = Script("remember_members", __package__)
READ_REMEMBERED: Final = Script("read_remembered", __package__)

KIND: Final = "remembered"
"""The kind of its keys."""

_COST: Final = 700
"""Microseconds that it takes to read up to 1,000 members that were shown before."""


def remembered_key(keys: Keys, member: str) -> str:
    """Sorted set: members that ``recommend(remember=…)`` has shown to one -> until when, in microseconds."""
    return keys.beside(KIND, member)


class Memory(NamedTuple):
    """The members drawn are not drawn again for a time, unless no others are left."""

    span: int
    """Microseconds."""

    def reading(self, keys: Keys, member: str) -> Call:
        return Call(READ_REMEMBERED, (remembered_key(keys, member),), (), _COST)

    def drawn(self, keys: Keys, member: str, members: Sequence[str | bytes]) -> Steps[None]:
        call = Call(
            REMEMBER_MEMBERS, (remembered_key(keys, member),), (self.span, *members), 3 * len(members)
        )
        return one(call, writes=True)


def remembering(span: Any) -> Memory:
    """Return what ``remember`` asks for. Raises ``ValueError``."""
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f"remember: expected a positive timedelta, not {span!r}")
    return Memory(span // timedelta(microseconds=1))


def forget_remembered(keys: Keys, member: str) -> Steps[int]:
    """Forget the members that were shown to a member."""
    return one(Call("UNLINK", (remembered_key(keys, member),)), writes=True)
