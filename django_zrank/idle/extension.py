"""Idle members, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.core.checks import CheckMessage

from ..extension import Extension
from ..queries.request import Call
from ..queries.steps import Steps
from ..redis.keys import Keys
from ..store import Store
from .checks import check_idle
from .declaration import IdleIndex
from .store import note_removal
from .sweep import asleep_since, sweep, write_seen
from .touching import touch, touched_key

__all__ = ["Idle"]


class Idle(Extension[IdleIndex]):
    needs = ("model",)
    is_timed = True

    def is_declared(self, index: IdleIndex) -> bool:
        return index.awake is not None

    def check(self, index: IdleIndex) -> Iterator[CheckMessage]:
        return check_idle(index)

    def before_rows(self, index: IdleIndex) -> int | None:
        return asleep_since(index)

    def removing(self, index: IdleIndex, before: int | None) -> Callable[[Store], None] | None:
        """Note the latest time of activity that the push considers idle. If a sweep finds that this time isn't idle
        yet, the clock was ahead, and these members return."""
        after = asleep_since(index)
        if after is None:
            return None
        moment = after if before is None else max(before, after)
        return lambda store: note_removal(store, moment)

    def building(self, index: IdleIndex) -> Mapping[str, int | None]:
        return {"swept": asleep_since(index)}

    def work(self, index: IdleIndex, *, limit: int | None, patience: float, skip_locked: bool) -> int:
        return sweep(index, limit=limit, patience=patience)

    def report(self, members: int) -> str:
        return f"{members} fell asleep"

    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        return Call("ZREM", (key,), (member,)) if key == touched_key(keys) else None

    def rouse(self, index: IdleIndex, pks: Sequence[Any]) -> list[Any]:
        return write_seen(index, pks) if index.seen_field else []

    def changed(self, index: IdleIndex, members: Sequence[str]) -> Steps[None]:
        if index.seen_field:
            yield from touch(index, members)
