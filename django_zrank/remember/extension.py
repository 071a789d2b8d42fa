"""Members that were shown, as an erasure calls them."""

from __future__ import annotations

from typing import Any

from ..declaration import Index
from ..extension import Extension
from ..queries.request import Call
from ..redis.keys import Keys
from .memory import KIND, remembered_key

__all__ = ["Remembered"]


class Remembered(Extension[Index[Any]]):
    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        """Return the call that removes a member from those shown to another one, or all that were shown to it."""
        if keys.kind_of(key) != KIND:
            return None
        is_own = key == remembered_key(keys, member)
        return Call("UNLINK", (key,)) if is_own else Call("ZREM", (key,), (member,))
