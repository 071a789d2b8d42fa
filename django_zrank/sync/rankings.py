"""Names of facet rankings, and counts of distinct values: Redis compared with itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from .report import Example, Report
from .sides import ComparedPart, pieces
from .weights import Values, Weights, group_of

__all__ = ["Rankings"]

_MANY: Final = 100_000
"""The most values that are remembered, in order not to check one twice."""


class Rankings:
    """The names of all facet rankings of a part and, of dense indexes, the counts of their values.

    A script decides about each difference, in one step.
    """

    def __init__(self, side: ComparedPart, weights: Weights, report: Report, *, repair: bool) -> None:
        self.store, self.generation = side.store, side.generation
        self.values = Values(weights) if side.store.layout.dense else None
        self.report = report
        self.repair = repair

        self.names: list[str] = []
        """Facet rankings that are registered, that exist, or that have parts left."""

        self.doubtful: set[bytes] = set()
        """Names that are registered without a ranking, or the other way round."""

    def list_names(self) -> None:
        """Read the names of the rankings."""
        if not self.store.layout.memberships:
            return
        registered = {
            name: score
            for _, found in pieces(self.store.scan_registry(self.generation))
            for name, score in found
        }
        there, traces = set[bytes](), set[bytes]()
        for part in chain.from_iterable(self.store.scan_names(self.generation)):
            # Values have no plain colon, so what follows a second one is a part of the ranking.
            name = b":".join(part.split(b":")[:2])
            (there if name == part else traces).add(name)
        found = {name for name in registered.keys() | there | traces if b":" in name}
        self.names = sorted(name.decode(errors="replace") for name in found)
        misnamed = {name for name, score in registered.items() if score}
        self.doubtful = registered.keys() ^ (there & found) | misnamed

    def add_counts(self) -> None:
        """Add the counts and lists of values of all rankings to the sketch."""
        if self.values:
            for name, counts in pieces(self.store.scan_counts(self.generation, ("", *self.names))):
                self.values.subtract_counts(name, counts)
            for name, values in pieces(self.store.scan_values(self.generation, ("", *self.names))):
                self.values.add_listed(name, values)

    def check(self) -> None:
        """Report the names and counts that are wrong."""
        for name in self.store.check_names(self.generation, sorted(self.doubtful), repair=self.repair):
            self.tell(Example(name.decode(), None, None, "name of a facet ranking"))
        if self.values and self.values.sketch:
            self.check_counts(self.values)

    def check_counts(self, differing: Values) -> None:
        """Check each value that differs once, although members, counts and lists may all have it."""
        seen = set[bytes]()
        for name, values in self.scan_values(differing):
            groups = {group_of(name, value): value for value in values}
            asked = [group for group in groups.keys() - seen if differing.sketch.is_uneven(group)]
            if len(seen) < _MANY:
                seen.update(asked)
            found = self.store.check_counts(
                self.generation, name, map(groups.__getitem__, asked), repair=self.repair
            )
            for value, right, counted in found:
                label = f"{name} {value.decode(errors='backslashreplace')}".strip()
                number = int(counted) if counted.isdigit() else None
                self.tell(Example(label, right, number, "count of a value"))

    def scan_values(self, differing: Values) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the values of all rankings, with the rankings' names."""
        names = ("", *self.names)
        for name, members in pieces(self.store.scan(self.generation, names)):
            yield name, differing.of(members)
        yield from pieces(self.store.scan_counts(self.generation, names))
        for name, values in pieces(self.store.scan_values(self.generation, names)):
            yield name, [value for value, _ in values]

    def tell(self, example: Example) -> None:
        self.report.broken.add(example)
        self.report.repaired += self.repair
