"""The members that marks lead to, by the parts of the index that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections

from .marks import Seen
from .watched_tables import watched_tables

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Lead", "TooMany", "follow"]


class TooMany(Exception):
    """Marks lead to more members than were wanted."""


class Lead(NamedTuple):
    """Marks that lead to the same parts."""

    marks: Sequence[Seen]

    members: Mapping[RankIndex, Collection[Any]]
    """The primary keys of the members that these lead to, by their parts."""

    parts: Collection[RankIndex]
    """Those parts. Marks that lead to nobody are the first one's: without a write, nothing tells that they still
    count."""

    @property
    def is_direct(self) -> bool:
        """True for marks that name their members."""
        return self.marks[0][1] is None


def follow(index: RankIndex, marks: Sequence[Seen], limit: int | None = None) -> Iterator[Lead]:
    """Yield each of ``marks`` once. Raises ``TooMany`` where others than themselves lead to ``limit`` members."""
    named, nobody = [], []
    texts: dict[str | None, Any] = {}
    for mark in marks:
        _, via, member = mark
        if via is None:
            if member not in texts:
                texts[member] = _parse(index, member)
            pk = texts[member]
            if pk is None:
                nobody.append(mark)
            else:
                named.append((mark, pk))
    for part, pairs in index.split(named, lambda pair: index.to_text(pair[1])).items():
        yield Lead([mark for mark, _ in pairs], {part: {pk for _, pk in pairs}}, (part,))
    linked: dict[str, list[Seen]] = {}
    for mark in marks:
        if mark[1] is not None:
            linked.setdefault(mark[1], []).append(mark)
    for source in watched_tables(index) if linked else ():
        own = linked.pop(source.via, None) if source.via is not None else None
        if own:
            owners = {str(member) for _, _, member in own}
            found = list(source.members_at(owners, index.get_using(), limit=limit))
            if limit is not None and len(found) >= limit:
                raise TooMany  # there may be more
            members = {part: set(pks) for part, pks in index.split(found, index.to_text).items()}
            yield Lead(own, members, tuple(members) or index.parts[:1])
    for lost in (nobody, *linked.values()):
        if lost:
            yield Lead(lost, {}, index.parts[:1])


def _parse(index: RankIndex, text: Any) -> Any:
    """The primary key that a mark names. None for what no row's key can be: a row that points at rows of several
    models, by a key as text."""
    try:
        pk = index.from_text(text)
    except ValueError:
        return None
    # SQLite has no such rows, and can't even be asked for them.
    is_sqlite = connections[index.get_using()].vendor == "sqlite"
    return None if is_sqlite and isinstance(pk, int) and not -(2**63) <= pk < 2**63 else pk
