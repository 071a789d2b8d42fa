"""Idle members, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage

from ..extension import Extension
from ..queries.request import Call
from ..queries.steps import Steps
from ..redis.keys import Keys
from .checks import check_idle
from .declaration import IdleIndex
from .seeing import write_seen
from .touching import touch, touched_key

__all__ = ["Idle"]


class Idle(Extension[IdleIndex]):
    needs = ("model",)

    def is_declared(self, index: IdleIndex) -> bool:
        return index.awake is not None

    def check(self, index: IdleIndex) -> Iterator[CheckMessage]:
        return check_idle(index)

    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        return Call("ZREM", (key,), (member,)) if key == touched_key(keys) else None

    def rouse(self, index: IdleIndex, pks: Sequence[Any]) -> list[Any]:
        return write_seen(index, pks) if index.seen_field else []

    def changed(self, index: IdleIndex, members: Sequence[str]) -> Steps[None]:
        if index.seen_field:
            yield from touch(index, members)
