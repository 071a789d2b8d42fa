"""One pass over both sides of an index."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice, zip_longest
from typing import Any, Final

from ..store import Number, Replaced
from .rankings import Rankings
from .report import Report
from .rows import EncodedRow, encode, select
from .sides import ComparedPart, Sides, pieces
from .strangers import Strangers
from .suspects import Suspects
from .watched_tables import every_row
from .weights import Weights

__all__ = ["Comparison"]

_PAGE: Final = 10
"""The number of batches that one query of the database reads."""

_MANY: Final = 100_000
"""The most members in wrong rankings that are remembered, to be reported with their other errors."""


class Comparison:
    """One pass over both sides, and a second one over what differs.

    The first streams both into a :class:`~django_zrank.sync.weights.MultisetSketch`. Members that are right on both
    sides leave no trace in it, and are not looked up. The second looks at the suspects, the members whose cells differ:
    they are wrong, have changed in between, or share a cell with one of these.
    """

    def __init__(self, report: Report, *, repair: bool, size: int, progress: Callable[[int], Any]) -> None:
        self.report = report
        self.progress = progress
        self.repair = repair
        self.sides = Sides(report.index, size)
        self.index, self.layout = self.sides.index, self.sides.layout
        self.suspects = Suspects(self.sides, report, repair=repair)
        self.strangers = Strangers(self.sides)
        self.weights = Weights(self.layout)
        self.sketch, self.member_of = self.weights.sketch, self.weights.member_of
        self.rankings = {
            side: Rankings(side, self.weights, report, repair=repair) for side in self.sides.parts.values()
        }

    def run(self) -> None:
        for rankings in self.rankings.values():
            rankings.list_names()
        self.add_sides()
        if self.sketch:
            self.look_closer()
        self.strangers.settle(self.report, repair=self.repair)
        for rankings in self.rankings.values():
            rankings.check()
        for side in self.rankings:
            side.require_same()

    # Both sides into the sketch

    def add_sides(self) -> None:
        """Add both sides in turns: Redis is read while the database is queried, and while rows are encoded."""
        with closing(self.add_stored()) as stored:
            for _ in zip_longest(self.add_rows(), stored):
                pass

    def add_rows(self) -> Iterator[None]:
        """Add the rows: as many at a time as are in a piece of :meth:`add_stored`, so that both end together."""
        stands = 1 + len(self.index.faceting.all) + self.layout.memberships
        for rows in self.batches(max(1, self.sides.size // (2 * stands))):
            self.weights.add_rows(rows)
            self.report.rows += len(rows)
            self.progress(len(rows))
            yield

    def add_stored(self) -> Generator[None]:
        """Subtract what Redis holds, a piece at a time."""
        for side, name, members in self.scan():
            self.weights.subtract_ranking(name, self.strangers.leave_out(side, name, members))
            if values := self.rankings[side].values:
                values.add_ranking(name, members)
            if not name:
                self.report.members += len(members)
                self.progress(len(members))
            yield
        for memberships in self.scan_memberships():
            self.weights.subtract_memberships(memberships)
            yield
        for rankings in self.rankings.values():
            rankings.add_counts()

    def scan(self, *names: str) -> Iterator[tuple[ComparedPart, str, Sequence[tuple[bytes, float]]]]:
        """Yield the stored members of these rankings of all parts, by default of all rankings."""
        for side, rankings in self.rankings.items():
            for name, members in pieces(side.store.scan(side.generation, names or ("", *rankings.names))):
                yield side, name, members

    def scan_memberships(self) -> Iterator[Mapping[bytes, bytes]]:
        for side in self.sides.parts.values() if self.layout.memberships else ():
            for _, memberships in pieces(side.store.scan_memberships(side.generation)):
                yield self.strangers.leave_out_memberships(side, memberships)

    def batches(self, size: int, *, differing: bool = False) -> Iterator[dict[bytes, EncodedRow]]:
        """Yield each member that there should be, with its row; or those whose cells differ."""
        to_text, is_uneven = self.index.to_text, self.sketch.is_uneven
        for page in self.pages():
            if differing:
                page = [row for row in page if is_uneven(to_text(row[0]).encode())]
            ranked = encode(self.index, page, self.sides.stores)
            while rows := {to_text(row[0]).encode(): row for row in islice(ranked, size)}:
                yield self.with_pending(rows) if self.index.rule else rows

    def with_pending(self, rows: dict[bytes, EncodedRow]) -> dict[bytes, EncodedRow]:
        """Return rows with the pending changes that they lack. If that can't be told, their members become suspects."""
        found: Mapping[bytes, tuple[Number, bytes]] = {}
        with suppress(Replaced):
            found = self.sides.with_pending({member: row[1:] for member, row in rows.items()})
        return {member: (row[0], *found.get(member, row[1:])) for member, row in rows.items()}

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the primary key and criteria of each row, some batches at a time, in the order of primary keys.

        Each page is a query of its own: a long one would keep the database from removing old rows, and some drivers
        allow no other query meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL joins other tables from
        their beginning each time. And it is larger than a batch, for which PostgreSQL would read each joined table
        whole, because it expects it to be small.
        """
        rows = select(self.index)
        keys = every_row(self.index.model, self.sides.using).order_by("pk").values_list("pk", flat=True)
        size = self.sides.size * _PAGE
        bounds: dict[str, Any] = {}
        while True:
            # The last key of a full page; none if there are fewer.
            ends = list(keys.filter(**bounds)[size - 1 : size])
            yield list(rows.filter(**bounds, **({"pk__lte": ends[0]} if ends else {})))
            if not ends:
                break
            bounds = {"pk__gt": ends[0]}

    # Differences

    def look_closer(self) -> None:
        """Suspect each member whose cell differs, once: by its row, or otherwise by its record in Redis. Rankings that
        it is wrongly in are found first, to be reported with its other errors."""
        if self.layout.memberships:
            for name, stored in self.differing():
                self.note_strays(name, stored)
        for rows in self.batches(self.sides.size, differing=True):
            for member, (pk, *_) in rows.items():
                self.suspects.add(member, pk)
        self.suspects.settle()
        strays = self.suspects.strays
        for _, stored in self.differing(""):
            members = ((self.member_of(each), ("", each)) for each in stored)
            self.suspect_rowless(
                member for member, occurrence in members if occurrence not in strays.get(member, ())
            )
        for memberships in self.scan_memberships():
            found = [member for member in memberships if self.sketch.is_uneven(member)]
            standings = zip(found, self.sides.read_redis(found), strict=True)
            self.suspect_rowless(member for member, standing in standings if standing.score is None)
        self.suspects.settle()
        self.suspect_strays()

    def differing(self, *names: str) -> Iterator[tuple[str, list[bytes]]]:
        """Yield the stored members of rankings whose cells differ."""
        for side, name, members in self.scan(*names):
            own = self.strangers.leave_out(side, name, members)
            found = [stored for stored, _ in own if self.sketch.is_uneven(self.member_of(stored))]
            if found:
                yield name, found

    def note_strays(self, name: str, stored: list[bytes]) -> None:
        """Find the members that are in rankings which their membership doesn't name."""
        occurrences, strays = [(name, each) for each in stored], self.suspects.strays
        for occurrence, score in zip(occurrences, self.sides.find_strays(occurrences), strict=True):
            if score is not None:
                strays.setdefault(self.member_of(occurrence[1]), set()).add(occurrence)
        if len(strays) > _MANY:
            self.suspect_strays()

    def suspect_strays(self) -> None:
        """Suspect the strays that were found by no row: they are otherwise right, or have none."""
        for member in list(self.suspects.strays):
            self.suspects.add(member, self.sides.pk_of(member))
        self.suspects.settle()
        self.suspects.strays.clear()

    def suspect_rowless(self, members: Iterable[bytes]) -> None:
        """Suspect the members that the database doesn't rank."""
        pks = {member: self.sides.pk_of(member) for member in members}
        rows = self.sides.read_database(pks)
        for member, pk in pks.items():
            if member not in rows:
                self.suspects.add(member, pk)
