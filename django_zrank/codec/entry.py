"""Decode stored members and their scores."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import total_ordering
from threading import Lock
from typing import Any, NamedTuple

from django.utils.asyncio import async_unsafe

from .layout import Layout
from .order import Order

__all__ = ["Entry", "LateEntry", "LateRanks", "RankBySortKey", "Ranked", "decoder"]

RankBySortKey = Mapping[tuple[float, bytes], int | None]
"""Ranks by sort key: the score of a member, and its stored form."""

Ranked = tuple[bytes, float, "int | LateRank | None"]
"""A stored member, its score and its rank."""


class Entry(NamedTuple):
    """One member of a ranking."""

    pk: Any
    """The primary key, in the model's own type."""

    score: Any
    """The value of the first criterion, in the field's own type."""

    rank: int | None
    """1 is best. ``ranking_method`` ranks members that are equal in every criterion. None for recommendations under
    filters that no facet covers, where each rank would cost a look-up. If a draw doesn't return the ranks of
    recommendations, they are fetched when the first one is used."""

    values: tuple[Any, ...]
    """The values of all criteria, each in its field's own type."""

    @property
    def shown(self) -> Mapping[str, Any]:
        """The values of the columns that the index shows, each in its field's own type, by their paths; empty if it
        shows none."""
        return {}


class LateRanks:
    """Ranks that are fetched together when the first one is used."""

    def __init__(self, fetch: Callable[[], RankBySortKey]) -> None:
        self._fetch = async_unsafe(
            "An attribute can't wait for Redis in a coroutine: draw with arecommend(), which fetches ranks, or read "
            "them in a thread."
        )(fetch)
        self._found: RankBySortKey | None = None
        self._lock = Lock()

    def __getitem__(self, sort_key: tuple[float, bytes]) -> LateRank:
        return LateRank(self, sort_key)

    def fetched(self) -> RankBySortKey:
        with self._lock:
            if self._found is None:
                self._found = self._fetch()
            return self._found


@total_ordering
class LateRank:
    """The rank in the tuple of a :class:`LateEntry`, visible only to C code that reads the tuple directly:
    comparisons, ``hash()``, ``%``. Compares, hashes and prints as the number, but isn't an ``int``: C code would read
    its value without fetching it."""

    __slots__ = ("_ranks", "_sort_key")

    def __init__(self, ranks: LateRanks, sort_key: tuple[float, bytes]) -> None:
        self._ranks, self._sort_key = ranks, sort_key

    def fetch(self) -> int | None:
        return self._ranks.fetched()[self._sort_key]

    def __eq__(self, other: object) -> bool:
        return bool(self.fetch() == _fetched(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.fetch() < _fetched(other))

    def __hash__(self) -> int:
        return hash(self.fetch())

    def __index__(self) -> int:
        return operator.index(self.fetch())  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return repr(self.fetch())


def _fetched(value: Any) -> Any:
    return value.fetch() if isinstance(value, LateRank) else value


class LateEntry(Entry):
    """An entry whose rank is fetched when it is first used."""

    __slots__ = ()

    @property
    def rank(self) -> int | None:
        return self[2]

    def __iter__(self) -> Iterator[Any]:
        return map(_fetched, super().__iter__())

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return tuple(map(_fetched, found)) if isinstance(at, slice) else _fetched(found)

    def __add__(self, other: Any) -> Any:
        return tuple(self) + other

    def __radd__(self, other: Any) -> Any:
        return other + tuple(self)

    def __mul__(self, times: Any) -> Any:
        return tuple(self) * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(Entry(*self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Entry, tuple(self)


def decoder(order: Order, layout: Layout, to_pk: Callable[[bytes], Any]) -> Callable[..., list[Entry]]:
    """Return a function that decodes ranked members into entries; ``to_pk`` decodes their primary keys."""
    split, decode = layout.split, order.first.kind.decode
    new: Callable[..., Entry] = tuple.__new__  # half the time of Entry(…), and there may be hundreds

    def plain(ranked: Iterable[Ranked], entry: type[Entry] = Entry) -> list[Entry]:
        return [
            new(entry, (to_pk(stored), value, rank, (value,)))
            for stored, score, rank in ranked
            for value in (decode(score),)
        ]

    def tied(ranked: Iterable[Ranked], entry: type[Entry] = Entry) -> list[Entry]:
        entries = []
        for stored, score, rank in ranked:
            tie, member = split(stored)
            values = order.decode(score, tie)
            entries.append(new(entry, (to_pk(member), values[0], rank, values)))
        return entries

    return tied if order.width or order.is_wide else plain
