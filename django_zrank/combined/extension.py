"""Combined filters, as an erasure calls them."""

from __future__ import annotations

from typing import Any, Final

from ..declaration import Index
from ..extension import Extension
from ..queries.request import Call
from ..redis.keys import Keys

__all__ = ["Combined"]

_WITHOUT_MEMBERS: Final = (":stamp", ":values", ":counts")
"""The ends of the names of keys in which no members are."""


class Combined(Extension[Index[Any]]):
    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        """Return the call that removes a combined filter as a whole."""
        if keys.kind_of(key) != "combined_filter" or key.endswith(_WITHOUT_MEMBERS):
            return None
        return Call("UNLINK", (key,))
