"""Both sides of an index, of some members: Redis and the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db import connections

from ..codec.units import Number
from ..store import Pieces, Standing, Store
from .idle import unswept
from .marks import waiting_marks
from .prefetch import ahead
from .push import read

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Location", "Replaced", "Sides", "pieces", "stands"]

_FEW: Final = 1000
"""The most waiting marks that are told apart."""

Location = tuple[str, bytes]
"""The name of a facet ranking, '' for the whole index, and a stored member."""

Found = TypeVar("Found")


class Replaced(Exception):
    """Another generation, or another server, took the place of the one that was being compared."""


class Sides:
    """Reads both sides, as long as Redis holds the generation that it held at the beginning."""

    def __init__(self, index: RankIndex, size: int) -> None:
        self.index = index
        self.size = size
        self.using = index.get_using()
        self.store = Store(index.name, index.layout, index.rule)
        self.generation = self.store.check_health().generation

        self.agreed: set[bytes] = set()
        """Members whose score was right, with what was pending, at one moment while they were read."""

    def require_same(self) -> None:
        """Raise ``Replaced`` where another generation or server took its place."""
        health = self.store.check_health()
        if health.generation != self.generation or not health.is_accepted:
            raise Replaced

    @staticmethod
    def believed(found: list[Found] | None) -> list[Found]:
        """Return the server's reply, if it still holds what is compared."""
        if found is None:
            raise Replaced
        return found

    def pk_of(self, member: bytes) -> Any:
        """The primary key of the row that ``member`` stands for, None where no row can have it."""
        try:
            pk = self.index.parse_pk(member.decode())
        except ValueError:
            return None
        if isinstance(pk, int) and pk.bit_length() > 63:  # SQLite can't even be asked for it
            return None
        return pk if self.index.to_text(pk).encode() == member else None  # 007 is not 7

    def read_database(self, pks: Mapping[bytes, Any]) -> dict[bytes, tuple[Number, bytes]]:
        """The score and the membership of each member that is ranked now."""
        asked = (pk for pk in pks.values() if pk is not None)
        limit = min(self.size, connections[self.using].features.max_query_params or self.size)
        rows: dict[bytes, tuple[Number, bytes]] = {}
        self.agreed.clear()
        while chunk := list(islice(asked, limit)):
            found = read(self.index, chunk, self.store)
            ranked = {
                text.encode(): (score, membership) for text, score, membership in found if score is not None
            }
            adjusted = self.with_pending(ranked)
            if adjusted is None:
                raise Replaced
            rows.update(adjusted)
        return rows

    def with_pending(
        self, rows: Mapping[bytes, tuple[Number, bytes]]
    ) -> Mapping[bytes, tuple[Number, bytes]] | None:
        """Rows with what they lack of scores that begin in Redis. None: they are too old to tell."""
        # A score that tie bytes make exact lies beyond what a change may lead to.
        plain = {member: row for member, row in rows.items() if row[1][:1] != b"\0"}
        if not self.store.rule or not plain:
            return rows
        asked = [(member.decode(), score) for member, (score, _) in plain.items()]
        found = self.store.read_pending(self.generation, asked)
        if found is None:
            return None
        self.agreed |= {member for member, (_, agrees) in zip(plain, found, strict=True) if agrees}
        scores = zip(plain.items(), found, strict=True)
        return {**rows, **{member: (score, row[1]) for (member, row), (score, _) in scores}}

    def read_redis(self, members: Iterable[bytes]) -> list[Standing]:
        """Return where each member stands."""
        return self.believed(self.store.read_members(self.generation, members))

    def find_strays(self, locations: Sequence[Location], repair: bool = False) -> list[float | None]:
        return self.believed(self.store.find_strays(self.generation, locations, repair=repair))

    def in_flight(self, suspects: Mapping[bytes, Any]) -> Collection[bytes]:
        """The suspects that a waiting mark is about, or may be; and those that fell asleep, and are not swept yet."""
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
    """The pieces of a scan, the next of which are read while the caller is at these."""
    return chain.from_iterable(ahead(scan))


def stands(found: Standing, expected: tuple[Number, bytes] | None) -> bool:
    """Return True if a member stands where it should. ``expected``: score and membership, None if it isn't ranked."""
    if expected is None:
        return found.score is None and not found.membership
    return (found.score, found.membership) == expected and not found.absent
