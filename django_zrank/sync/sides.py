"""The two sides of a comparison: Redis and the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeVar

from django.db import connections

from ..codec.units import Number
from ..index import RankIndex
from ..members import batched
from ..store import Pieces, Replaced, Standing, Store
from .idle import unswept
from .marks import waiting_marks
from .prefetch import ahead
from .push import read
from .weights import member_getter

__all__ = ["ComparedPart", "Occurrence", "Sides", "pieces", "stands"]

_FEW: Final = 1000
"""The most waiting marks that are matched with suspects."""

Occurrence = tuple[str, bytes]
"""The name of a facet ranking, '' for the whole index, and a stored member."""

Found = TypeVar("Found")
Item = TypeVar("Item")


class ComparedPart:
    """A part in Redis, while that holds the same generation as at the beginning."""

    def __init__(self, part: RankIndex) -> None:
        self.part = part
        self.store = Store.of(part)
        self.generation = self.store.check_health().generation

    def require_same(self) -> None:
        """Raise ``Replaced`` if another generation or server took its place."""
        health = self.store.check_health()
        if health.generation != self.generation or not health.is_accepted:
            raise Replaced


class Sides:
    """Reads both sides: the database, and all parts in Redis."""

    def __init__(self, index: RankIndex, size: int) -> None:
        self.index = index
        self.size = size
        self.using = index.get_using()
        self.parts = {part: ComparedPart(part) for part in index.parts}
        self.layout = index.layout
        self._member_of = member_getter(index.layout)

        self.agreed: set[bytes] = set()
        """Members whose score, with pending changes, was right at one moment while they were read."""

    @property
    def stores(self) -> list[Store]:
        return [side.store for side in self.parts.values()]

    def ask(
        self,
        items: Iterable[Item],
        member: Callable[[Item], bytes],
        ask: Callable[[ComparedPart, list[Item]], list[Found]],
    ) -> list[Found]:
        """Return the answers about items, each from the part of its member."""
        asked = list(items)
        answers: dict[int, Found] = {}
        for part, own in self.index.split(range(len(asked)), lambda at: member(asked[at])).items():
            answers.update(zip(own, ask(self.parts[part], [asked[at] for at in own]), strict=True))
        return [answers[at] for at in range(len(asked))]

    def pk_of(self, member: bytes) -> Any:
        """Return the primary key of a member's row, None if no row can have it."""
        try:
            pk = self.index.parse_pk(member.decode())
        except ValueError:
            return None
        if isinstance(pk, int) and pk.bit_length() > 63:  # SQLite rejects a query for it
            return None
        return pk if self.index.to_text(pk).encode() == member else None  # 007 is not 7

    def read_database(self, pks: Mapping[bytes, Any]) -> dict[bytes, tuple[Number, bytes]]:
        """Return the score and the membership of each member that is ranked now."""
        asked = (pk for pk in pks.values() if pk is not None)
        limit = min(self.size, connections[self.using].features.max_query_params or self.size)
        rows: dict[bytes, tuple[Number, bytes]] = {}
        self.agreed.clear()
        for chunk in batched(asked, limit):
            found = read(self.index, chunk, *self.stores)
            ranked = {
                text.encode(): (score, membership) for text, score, membership in found if score is not None
            }
            rows.update(self.with_pending(ranked))
        return rows

    def with_pending(
        self, rows: Mapping[bytes, tuple[Number, bytes]]
    ) -> Mapping[bytes, tuple[Number, bytes]]:
        """Return rows with the pending changes that they lack. Raises ``Replaced`` if they are too old to tell."""
        # No change leads to a score that needs tie bytes to be exact.
        plain = {member: row for member, row in rows.items() if row[1][:1] != b"\0"}
        if not self.index.rule or not plain:
            return rows
        asked = [(member, score) for member, (score, _) in plain.items()]
        found = self.ask(
            asked, itemgetter(0), lambda side, own: side.store.read_pending(side.generation, own)
        )
        self.agreed |= {member for member, (_, agrees) in zip(plain, found, strict=True) if agrees}
        scores = zip(plain.items(), found, strict=True)
        return {**rows, **{member: (score, row[1]) for (member, row), (score, _) in scores}}

    def read_redis(self, members: Iterable[bytes]) -> list[Standing]:
        return self.ask(
            members, lambda member: member, lambda side, own: side.store.read_members(side.generation, own)
        )

    def find_strays(self, occurrences: Sequence[Occurrence], repair: bool = False) -> list[float | None]:
        return self.ask(
            occurrences,
            lambda occurrence: self._member_of(occurrence[1]),
            lambda side, own: side.store.find_strays(side.generation, own, repair=repair),
        )

    def in_flight(self, suspects: Mapping[bytes, Any]) -> Collection[bytes]:
        """Return the suspects that a waiting mark may lead to, and those that fell asleep but are not swept yet."""
        marks = list(waiting_marks(self.index).order_by("id")[: _FEW + 1])
        if len(marks) > _FEW or any(mark.member is None or mark.via is not None for mark in marks):
            return suspects
        pks = (pk for pk in suspects.values() if pk is not None)
        members = {self.index.to_text(pk).encode() for pk in unswept(self.index, pks)}
        for mark in marks:
            with suppress(ValueError):  # one that can't be worked off
                members.add(self.index.to_text(mark.member).encode())
        return members


def pieces(scan: Iterator[Pieces[Found]]) -> Iterator[tuple[str, Found]]:
    """Yield the pieces of a scan, which are read ahead of the caller."""
    return chain.from_iterable(ahead(scan))


def stands(found: Standing, expected: tuple[Number, bytes] | None) -> bool:
    """Return True if a member is where it should be. ``expected``: score and membership, None if it isn't ranked."""
    if expected is None:
        return found.score is None and not found.membership
    return (found.score, found.membership) == expected and not found.absent
