"""The work and the findings of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.torture.compare import Wrong

__all__ = ["Outcome"]


@dataclass
class Outcome:
    """The work and the findings of a run."""

    title: str
    rounds: int = 0
    seconds: float = 0.0
    rows: int = 0
    transactions: int = 0
    undone: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    marks: int = 0
    syncs: int = 0
    members: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    complaints: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.complaints

    def __str__(self) -> str:
        kinds, others = (
            ", ".join(f"{kind} {number}" for kind, number in sorted(counter.items()))
            for counter in (self.kills, self.others)
        )
        lines = [
            f"{self.title}: {self.rounds} rounds, {self.seconds:.0f} s",
            f"writes   {self.rows} rows in {self.transactions} transactions; {self.undone} undone or refused",
            f"kills    {self.kills.total()}: {kinds}; beside that: {others}",
            f"marks    {self.marks} left for the end of a round, drained by {self.syncs} runs of sync_zrank",
            f"members  {self.members} compared, {len(self.wrong)} wrong",
            *map(str, self.wrong[:20]),
            *(f"{complaint} ({number} times)" for complaint, number in self.complaints.items()),
        ]
        return "\n".join(lines)
