"""One pass over both sides of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from ..store import Standing
from .multiset_sketch import MultisetSketch
from .prefetch import ahead, prefetch
from .report import Example, Report
from .rows import Row, encode, select
from .sides import Sides, stands
from .suspects import Suspects
from .watched_tables import every_row

__all__ = ["Comparison"]

_PAGE: Final = 10
"""The number of batches that one query of the database makes."""

_MANY: Final = 100_000
"""The most members in wrong rankings that are remembered, to be reported with their other errors."""


class Comparison:
    """One pass over both sides.

    Where members have memberships, Redis is first compared with itself: a member that stands in a ranking which its
    membership doesn't name is a stray. Every row is looked up in Redis: that finds what is missing or different. A
    :class:`~django_zrank.sync.multiset_sketch.MultisetSketch` of what was found there and of what is there tells if
    anything is extra; if so, it is looked for in the database.
    """

    def __init__(self, report: Report, *, repair: bool, size: int, progress: Callable[[int], Any]) -> None:
        self.report = report
        self.repair = repair
        self.progress = progress
        self.sides = Sides(report.index, size)
        self.index, self.store = self.sides.index, self.sides.store
        self.suspects = Suspects(self.sides, report, repair=repair)

    def run(self) -> None:
        sketch, layout = MultisetSketch(), self.store.layout
        if layout.memberships:
            self.look_for_strays()
        self.look_up_rows(sketch)
        for stored in ahead(self.store.scan(self.sides.size)):
            members = list(map(self.sides.member_of, stored)) if layout.memberships else stored
            sketch.subtract(members)
            self.report.members += len(members)
            self.progress(len(members))
        if sketch:
            self.look_up_members(sketch)
        if layout.memberships:
            self.look_up_memberships()
            self.accuse_strays()
        if layout.memberships or layout.dense:
            self.check_rankings()
        self.sides.require_same()

    def look_up_rows(self, sketch: MultisetSketch) -> None:
        for rows, standings in prefetch(self.look_up, self.batches()):
            found: Iterable[bytes] = rows
            if standings is not None:
                pairs = list(zip(rows.items(), standings, strict=True))
                wrong = (
                    (member, pk)
                    for (member, (pk, score, membership)), standing in pairs
                    if not stands(standing, (score, membership))
                )
                self.suspects.members.update(wrong)
                found = (member for (member, _), standing in pairs if standing.score is not None)
            sketch.add(found)
            self.report.rows += len(rows)
            self.suspects.settle(at_least=self.sides.size)
            self.progress(len(rows))
        self.suspects.settle()

    def look_up(self, rows: Mapping[bytes, Row]) -> list[Standing] | None:
        """Return where the members of these rows stand; None where their scores are all there is, and right: mostly."""
        if not self.store.layout.memberships:
            scores = self.store.scores(rows)
            if scores == [score for _, score, _ in rows.values()]:
                return None
            return [Standing(score, None) for score in scores]
        return self.sides.read_redis(rows, locations=False)

    def batches(self) -> Iterator[dict[bytes, Row]]:
        """Each member that there should be, with its row."""
        to_text = self.index.to_text
        for page in self.pages():
            ranked = encode(self.index, page)
            while rows := {to_text(row[0]).encode(): row for row in islice(ranked, self.sides.size)}:
                yield rows

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """Primary key and criteria of each row, some batches at a time, in the order of primary keys.

        Each page is a query of its own: a long one would keep the database from clearing away old rows, and
        with some drivers none could be asked meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL
        joins other tables from their beginning each time. And it is larger than a batch, where it takes what it
        joins for small enough to be read whole each time.
        """
        rows = select(self.index)
        keys = every_row(self.index.model, self.sides.using).order_by("pk").values_list("pk", flat=True)
        size = self.sides.size * _PAGE
        bounds: dict[str, Any] = {}
        while True:
            # The last of as many keys; none where there are fewer.
            ends = list(keys.filter(**bounds)[size - 1 : size])
            yield list(rows.filter(**bounds, **({"pk__lte": ends[0]} if ends else {})))
            if not ends:
                break
            bounds = {"pk__gt": ends[0]}

    def look_up_members(self, sketch: MultisetSketch) -> None:
        for stored in self.store.scan(self.sides.size):
            members = map(self.sides.member_of, stored)
            pks = {member: self.sides.pk_of(member) for member in sketch.uneven(members)}
            rows = self.sides.read_database(pks)
            self.suspects.members.update((member, pk) for member, pk in pks.items() if member not in rows)
            self.suspects.settle(at_least=self.sides.size)
        self.suspects.settle()

    # Redis against itself

    def look_for_strays(self) -> None:
        """Find who stands where the membership doesn't tell."""
        for name in ("", *self.names()):
            for stored in self.store.scan(self.sides.size, name):
                locations = [(name, each) for each in stored]
                for location, score in zip(locations, self.sides.find_strays(locations), strict=True):
                    if score is not None:
                        self.suspects.strays.setdefault(self.sides.member_of(location[1]), set()).add(
                            location
                        )
                if len(self.suspects.strays) > _MANY:
                    self.accuse_strays()

    def accuse_strays(self) -> None:
        """Those that no row has led to yet: they are otherwise right, or no row can be theirs."""
        for member in list(self.suspects.strays):
            self.suspects.members[member] = self.sides.pk_of(member)
            self.suspects.settle(at_least=self.sides.size)
        self.suspects.settle()
        self.suspects.strays.clear()

    def look_up_memberships(self) -> None:
        """Find the memberships of nobody: rows have not led to them."""
        for members in self.store.scan_memberships(self.sides.size):
            found = zip(members, self.sides.read_redis(members, locations=False), strict=True)
            pks = {member: self.sides.pk_of(member) for member, standing in found if standing.score is None}
            rows = self.sides.read_database(pks)
            self.suspects.members.update((member, pk) for member, pk in pks.items() if member not in rows)
            self.suspects.settle(at_least=self.sides.size)
        self.suspects.settle()

    def check_rankings(self) -> None:
        """Names and counts. Each is judged by the script that looks at it, in one step: nothing comes between."""
        names = self.names()
        for start in range(0, len(names), self.sides.size):
            batch = [name.encode() for name in names[start : start + self.sides.size]]
            for name in self.sides.believed(
                self.store.check_names(self.sides.generation, batch, repair=self.repair)
            ):
                self.tell_broken(Example(name.decode(), None, None, "name of a facet ranking"))
        for ranking in ("", *names) if self.store.layout.dense else ():
            told: set[bytes] = set()  # a value is met among members, counts and values
            for texts in self.store.scan(self.sides.size, ranking):
                self.check_counts(ranking, texts, told, members=True)
            for texts in self.store.scan_values(self.sides.size, ranking):
                self.check_counts(ranking, texts, told, members=False)

    def check_counts(self, ranking: str, texts: list[bytes], told: set[bytes], *, members: bool) -> None:
        found = self.store.check_counts(
            self.sides.generation, texts, ranking=ranking, members=members, repair=self.repair
        )
        for value, right, counted in self.sides.believed(found):
            if value not in told:
                label = f"{ranking} {value.decode(errors='backslashreplace')}".strip()
                self.tell_broken(
                    Example(label, right, int(counted) if counted.isdigit() else None, "count of a value")
                )
            if len(told) < _MANY:
                told.add(value)

    def tell_broken(self, example: Example) -> None:
        self.report.broken.add(example)
        self.report.repaired += self.repair

    def names(self) -> list[str]:
        """Of all facet rankings: those that there should be, that there are, and of which there are traces."""
        names = set(chain.from_iterable(self.store.scan_names(self.sides.size)))
        return sorted(name.decode(errors="replace") for name in names)
