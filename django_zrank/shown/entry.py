"""Entries with the values of shown columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec.entry import Entry, LateEntry

__all__ = ["LateShownEntry", "ShownEntry"]


class _Showing:
    """Attributes of an entry besides the tuple, which alone is compared."""

    shown: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{repr(Entry(*self))[:-1]}, shown={self.shown!r})"  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        return _entry, (tuple(self), self.shown)  # type: ignore[arg-type]

    def _replace(self, **changed: Any) -> Entry:
        return _entry(Entry(*self)._replace(**changed), self.shown)  # type: ignore[misc]


class ShownEntry(_Showing, Entry):  # type: ignore[misc]  # _replace()
    """An entry of an index with shown columns."""

    shown: Mapping[str, Any] = {}


class LateShownEntry(_Showing, LateEntry):  # type: ignore[misc]
    """An entry whose rank is fetched when it is first used, and whose columns were read with it."""

    shown: Mapping[str, Any] = {}


def _entry(values: tuple[Any, ...], shown: Mapping[str, Any]) -> Entry:
    entry = ShownEntry(*values)
    entry.shown = shown
    return entry
