"""The report of a verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..conf import get_settings
from ..exceptions import CaptureError
from ..index import RankIndex
from ..store import Number
from .health import Verdict
from .triggers import status

__all__ = ["CaptureState", "Drift", "Example", "Report", "examine_capture"]

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


@dataclass(frozen=True)
class CaptureState:
    """The capture of an index, and its defects."""

    mode: str
    """``triggers`` or ``signals``."""

    missing: Sequence[str] = ()
    """Missing or disabled triggers: changes go unnoticed."""

    outdated: Sequence[str] = ()
    """Triggers of another declaration of the index. They cost time, and do no harm."""

    unexpected: Sequence[str] = ()
    """Triggers of indexes that aren't registered: another project's, or removed ones."""

    error: str | None = None
    """The reason why the database can't have triggers."""

    @property
    def works(self) -> bool:
        return not (self.missing or self.error)


def examine_capture(index: RankIndex) -> CaptureState:
    """Return the state of the capture of ``index``."""
    mode = get_settings().capture
    try:
        own = status(index.get_using(), [index])
    except CaptureError as error:
        return CaptureState(mode, error=str(error))
    return CaptureState(
        mode, list(map(str, own.missing)), list(map(str, own.outdated)), list(map(str, own.unexpected))
    )


@dataclass
class Report:
    """The comparison of an index with its database."""

    index: RankIndex
    capture: CaptureState

    waiting: int
    """Marks that waited at the beginning."""

    oldest: float
    """Age of the oldest in seconds, by the database's clock; 0 if none waited."""

    warnings: Sequence[str]
    """Settings of Redis that endanger the index."""

    verdict: Verdict
    """The verdict at the end."""

    verdict_before: Verdict | None = None
    """The verdict before the repair."""

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
        """Add a wrong member."""
        if example.database is None:
            self.extra.add(example)
        elif example.redis is None:
            self.missing.add(example)
        else:
            self.different.add(example)
