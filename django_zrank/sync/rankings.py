"""The facet rankings that there are, and the counts of distinct values: Redis compared with itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from .multiset_sketch import MultisetSketch
from .prefetch import ahead
from .report import Example, Report
from .sides import Sides
from .weights import Weights, group_of

__all__ = ["Rankings"]

_MANY: Final = 100_000
"""The most values that are remembered, so that none is looked up twice."""


class Rankings:
    """The names of all facet rankings and, of dense indexes, the counts of their values.

    What differs is judged by a script that looks at it in one step: nothing comes between.
    """

    def __init__(self, sides: Sides, weights: Weights, report: Report, *, repair: bool) -> None:
        self.sides, self.store, self.generation = sides, sides.store, sides.generation
        self.weights = weights
        self.report = report
        self.repair = repair

        self.names: list[str] = []
        """Facet rankings that are registered, that there are, and of which there are traces."""

        self.doubtful: set[bytes] = set()
        """Names that are registered without a ranking, or the other way round."""

        self.sketch = MultisetSketch() if sides.store.layout.dense else None
        """Values of members, less those that are counted and listed."""

    def list_names(self) -> None:
        """Look up which rankings there are."""
        if not self.store.layout.memberships:
            return
        registered = dict(chain.from_iterable(self.store.scan_registry(self.generation)))
        there, traces = set[bytes](), set[bytes]()
        for part in chain.from_iterable(self.store.scan_parts(self.generation)):
            # A value has no plain colon in it: what follows one behind the name is a part of the ranking.
            name = b":".join(part.split(b":")[:2])
            (there if name == part else traces).add(name)
        found = {name for name in registered.keys() | there | traces if b":" in name}
        self.names = sorted(name.decode(errors="replace") for name in found)
        misnamed = {name for name, score in registered.items() if score}
        self.doubtful = registered.keys() ^ (there & found) | misnamed

    def add(self, name: str, members: Iterable[tuple[bytes, float]]) -> None:
        """Take in the members of a ranking."""
        if self.sketch is not None:
            self.sketch.add(self.weights.values(name, members))

    def add_counts(self) -> None:
        """Take in what is counted and listed of all rankings."""
        if self.sketch is not None:
            for name, counts in ahead(self.store.scan_counts(self.generation, ("", *self.names))):
                self.sketch.add(self.weights.counts(name, counts.items()))
            for name, values in ahead(self.store.scan_values(self.generation, ("", *self.names))):
                self.sketch.add(self.weights.listed(name, values))

    def check(self) -> None:
        """Report the names and counts that are wrong."""
        names = self.store.check_names(self.generation, sorted(self.doubtful), repair=self.repair)
        for name in self.sides.believed(names):
            self.tell(Example(name.decode(), None, None, "name of a facet ranking"))
        if self.sketch:
            self.check_counts(self.sketch)

    def check_counts(self, sketch: MultisetSketch) -> None:
        """Look up each value that differs once, though it is met among members, counts and the values listed."""
        seen = set[bytes]()
        for name, values in self.values():
            groups = {group_of(name, value): value for value in values}
            differing = {group: groups[group] for group in groups.keys() - seen if sketch.is_uneven(group)}
            if len(seen) < _MANY:
                seen.update(differing)
            found = self.store.check_counts(self.generation, name, differing.values(), repair=self.repair)
            for value, right, counted in self.sides.believed(found):
                label = f"{name} {value.decode(errors='backslashreplace')}".strip()
                number = int(counted) if counted.isdigit() else None
                self.tell(Example(label, right, number, "count of a value"))

    def values(self) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The values of all rankings, by their names."""
        names, value_of = ("", *self.names), self.weights.value_of
        for name, members in self.store.scan(self.generation, names):
            yield name, [value_of(stored, score) for stored, score in members]
        yield from self.store.scan_counts(self.generation, names)
        for name, values in self.store.scan_values(self.generation, names):
            yield name, [value for value, _ in values]

    def tell(self, example: Example) -> None:
        self.report.broken.add(example)
        self.report.repaired += self.repair
