"""The members that marks lead to, by their parts of the index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from django.db import connections

from ..index import RankIndex
from .marks import Seen
from .watched_tables import watched_tables

__all__ = ["Lead", "TooMany", "follow"]


class TooMany(Exception):
    """Marks lead to too many members."""


class Lead(NamedTuple):
    """Marks that lead to the same parts."""

    marks: Sequence[Seen]

    members: Mapping[RankIndex, Collection[Any]]
    """The primary keys of their members, by parts."""

    parts: Collection[RankIndex]
    """Those parts; the first one of the index if there are no members, because ``unmark()`` needs a write."""

    @property
    def is_direct(self) -> bool:
        """True for marks that name their members."""
        return self.marks[0][1] is None


def follow(index: RankIndex, marks: Sequence[Seen], limit: int | None = None) -> Iterator[Lead]:
    """Yield each of ``marks`` once. Raises ``TooMany`` if marks of related rows lead to ``limit`` members or more."""
    named: list[tuple[Seen, Any]] = []
    nobody: list[Seen] = []
    related: dict[str | None, list[Seen]] = {}
    parse = cache(partial(_parse, index))  # marks repeat members
    for mark in marks:
        _, via, member = mark
        if via is not None:
            related.setdefault(via, []).append(mark)
        elif (pk := parse(member)) is None:
            nobody.append(mark)
        else:
            named.append((mark, pk))
    for part, pairs in index.split(named, lambda pair: index.to_text(pair[1])).items():
        yield Lead([mark for mark, _ in pairs], {part: {pk for _, pk in pairs}}, (part,))
    for source in watched_tables(index) if related else ():
        if own := related.pop(source.via, None):
            owners = {str(member) for _, _, member in own}
            found = list(source.members_at(owners, index.get_using(), limit=limit))
            if limit is not None and len(found) >= limit:
                raise TooMany  # there may be more
            members = {part: set(pks) for part, pks in index.split(found, index.to_text).items()}
            yield Lead(own, members, tuple(members) or index.parts[:1])
    for lost in (nobody, *related.values()):
        if lost:
            yield Lead(lost, {}, index.parts[:1])


def _parse(index: RankIndex, text: Any) -> Any:
    """Return the primary key that a mark names; None if no row can have it: a generic relation may hold any text."""
    try:
        pk = index.from_text(text)
    except ValueError:
        return None
    # SQLite has no such rows, and rejects a query for them.
    is_sqlite = connections[index.get_using()].vendor == "sqlite"
    return None if is_sqlite and isinstance(pk, int) and not -(2**63) <= pk < 2**63 else pk
