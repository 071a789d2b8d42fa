"""The attribute ``shown`` of an index, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ..codec.entry import Entry, LateEntry, Ranked, decoder
from ..declaration import Index, Member
from ..queries.steps import Steps
from .column import ShownColumns
from .entry import LateShownEntry, ShownEntry
from .reading import attaching

__all__ = ["ShowingIndex"]

Answer = TypeVar("Answer")


class ShowingIndex(Index[Member]):
    """The declaration of an index whose entries show columns."""

    shown: Sequence[str] = ()
    """Columns whose values entries have without a query: ``("name", "avatar", "guild__name")``,
    ``entry.shown["name"]``. They are lookup paths with one value for each row. Redis holds the values with each member,
    as up to date as its score."""

    def get_shown(self) -> Sequence[str]:
        return self.shown

    @cached_property
    def showing(self) -> ShownColumns | None:
        """The columns of ``shown``; None if there are none. Raises ``FieldDoesNotExist`` and ``FieldError``."""
        return ShownColumns.parse(self.model, declared) if (declared := self.get_shown()) else None

    def attached_paths(self) -> list[str]:
        return self.showing.paths if self.showing else super().attached_paths()

    def attach(self, values: Sequence[Any]) -> bytes:
        return self.showing.encode(values) if self.showing else super().attach(values)

    def further_terms(self) -> list[Any]:
        return [*super().further_terms(), *([self.showing.declared] if self.showing else [])]

    def reading(self, ask: Callable[[Any], Steps[Answer]], live: Any) -> Steps[Answer]:
        steps = super().reading(ask, live)
        return attaching(steps, self.layout if self.finding.memberships else None) if self.showing else steps

    @cached_property
    def to_entries(self) -> Callable[..., list[Entry]]:
        entries_of = decoder(self.ordering, self.layout, self.from_bytes)
        if self.showing is None:
            return entries_of
        decode = self.showing.decode

        def to_entries(ranked: Iterable[Ranked], entry: type[Entry] = Entry) -> list[Entry]:
            ranked = list(ranked)
            entries = entries_of(ranked, LateShownEntry if entry is LateEntry else ShownEntry)
            rows = decode([getattr(stored, "attachment", b"") for stored, _, _ in ranked])
            for one, row in zip(entries, rows, strict=True):
                one.shown = row  # type: ignore[misc]
            return entries

        return to_entries
