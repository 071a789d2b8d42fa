"""Results: members of a ranking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, overload

from asgiref.sync import sync_to_async
from django.db import models

from .codec.entry import Entry
from .codec.units import Band
from .declaration import Index, Member

__all__ = ["Entries", "Entry", "EntryPage", "Recommendations"]


@dataclass(eq=False, repr=False)
class Entries(Sequence[Entry], Generic[Member]):
    """Members of a ranking, best first."""

    _index: Index[Member]
    _entries: list[Entry]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._entries!r}>"

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle, as Django's cache does. An index can't be pickled, and there is one in each process."""
        return {**vars(self), "_index": type(self._index)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _index=state["_index"].instance())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        """Like a list, so also equal to a list of the same entries."""
        return isinstance(other, (Entries, list)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> Entries[Member]: ...
    def __getitem__(self, position: int | slice) -> Entry | Entries[Member]:
        if isinstance(position, slice):
            return Entries(self._index, self._entries[position])
        return self._entries[position]

    def objects(self, queryset: models.QuerySet[Member] | None = None) -> list[Member]:
        """Return the rows of these members, in the same order, with one query. Deleted rows are left out.

        ``queryset``: the queryset to read them from, for example with ``select_related()``; by default the index's.
        """
        if not self._entries:
            return []
        if queryset is None:
            queryset = self._index.get_queryset()
        rows = {row.pk: row for row in queryset.filter(pk__in=[entry.pk for entry in self._entries])}
        return [rows[entry.pk] for entry in self._entries if entry.pk in rows]

    async def aobjects(self, queryset: models.QuerySet[Member] | None = None) -> list[Member]:
        """The asynchronous version of :meth:`objects`."""
        return await sync_to_async(self.objects)(queryset)

    async def __aiter__(self) -> AsyncIterator[Entry]:
        for entry in self._entries:
            yield entry


@dataclass(eq=False, repr=False)
class EntryPage(Entries[Member]):
    """Consecutive members, best first."""

    has_previous: bool
    """True if there were members before the first one."""

    has_next: bool
    """True if there were members after the last one."""


@dataclass(eq=False, repr=False)
class Recommendations(Entries[Member]):
    """The members drawn, best first."""

    band: Band
    """The band that was used: the one given, or a step of ``widen``."""

    candidates: int | None
    """The number of members in the band, including excluded members, but not the member itself. None if it isn't known:
    with ``where``, and with several filters that no facet covers, because members may then be tested one by one."""
