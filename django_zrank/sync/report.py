"""The report of a verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..index import RankIndex
from ..store import Number
from .health import Verdict
from .triggers import Status

__all__ = ["Drift", "Example", "Report"]

_EXAMPLES: Final = 5


class Example(NamedTuple):
    """A wrong member with its scores on both sides, None for no score; or another error, with its counts."""

    member: str
    database: Number | None
    redis: float | None

    why: str = ""
    """Other errors, such as facet rankings that it is missing from, or wrongly in."""


@dataclass
class Drift:
    """Members that are wrong in the same way."""

    count: int = 0

    examples: list[Example] = field(default_factory=list)
    """The first few of them."""

    def add(self, example: Example) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass
class Report:
    """The comparison of an index with its database."""

    index: RankIndex
    capture: Status

    waiting: int
    """Marks that waited at the beginning."""

    oldest: float
    """Age of the oldest in seconds, by the database's clock; 0 if none waited."""

    warnings: Sequence[str]
    """Settings of Redis that endanger the index."""

    verdict: Verdict
    verdict_before: Verdict | None = None

    compared: bool = False
    """True if members were compared, which takes an index that can be trusted."""

    rows: int = 0
    """Rows that the database ranks."""

    members: int = 0
    """Members in Redis."""

    missing: Drift = field(default_factory=Drift)
    """Ranked in the database, and not in Redis."""

    extra: Drift = field(default_factory=Drift)
    """In Redis, and not ranked in the database."""

    different: Drift = field(default_factory=Drift)
    """In Redis with another score, other tie bytes, or in other facet rankings."""

    broken: Drift = field(default_factory=Drift)
    """Names of facet rankings, and counts of distinct values, that are inconsistent within Redis."""

    repaired: int = 0
    """The number of these that were repaired."""

    unsettled: int = 0
    """Members that changed each time they were compared."""

    @property
    def drifts(self) -> dict[str, Drift]:
        """The errors found, by their kind."""
        return {kind: getattr(self, kind) for kind in ("missing", "extra", "different", "broken")}

    @property
    def drift(self) -> int:
        """The number of errors found."""
        return sum(drift.count for drift in self.drifts.values())

    @property
    def ok(self) -> bool:
        """True if the index is right now, and can be expected to stay right."""
        is_trusted = self.compared and self.verdict is Verdict.HEALTHY
        return is_trusted and self.capture.works and self.drift == self.repaired

    def add(self, example: Example) -> None:
        if example.database is None:
            self.extra.add(example)
        elif example.redis is None:
            self.missing.add(example)
        else:
            self.different.add(example)
