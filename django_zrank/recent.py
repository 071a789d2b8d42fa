"""Values that are kept for some seconds."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic
from typing import Generic, TypeVar

from .conf import key_prefix

__all__ = ["Recent"]

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by their keys, each for some seconds of the process's own clock. Each prefix of keys in Redis has its own:
    it may be a tenant's."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Hashable], tuple[float, Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """The value; None once it has expired."""
        until, value = self._kept.get((key_prefix(), key), (0.0, None))
        return value if monotonic() < until else None

    def keep(self, key: Hashable, value: Value, seconds: float = 1.0) -> Value:
        self._kept[key_prefix(), key] = monotonic() + seconds, value
        return value

    def replace(self, key: Hashable, value: Value) -> None:
        """Replace a value. The new one expires when the old one would have."""
        own = key_prefix(), key
        if found := self._kept.get(own):
            self._kept[own] = found[0], value

    def forget(self, key: Hashable) -> None:
        self._kept.pop((key_prefix(), key), None)

    def clear(self) -> None:
        self._kept.clear()
