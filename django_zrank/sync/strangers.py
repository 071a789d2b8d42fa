"""Members in a shard that isn't theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from .report import Example, Report
from .sides import ComparedPart, Occurrence, Sides
from .suspects import remove
from .weights import member_getter

__all__ = ["Strangers"]

_MANY: Final = 100_000
"""The most members of a part that are remembered. The next verification finds the rest."""


class Strangers:
    """Finds members that belong to another part. Nothing writes these, so one look is enough."""

    def __init__(self, sides: Sides) -> None:
        self.index, self.is_sharded = sides.index, len(sides.parts) > 1
        self._member_of = member_getter(sides.layout)

        self.found: dict[ComparedPart, dict[bytes, set[Occurrence]]] = defaultdict(dict)
        """Their occurrences, by the part where they are, and by members."""

    def leave_out(
        self, side: ComparedPart, name: str, members: Sequence[tuple[bytes, float]]
    ) -> Sequence[tuple[bytes, float]]:
        """Note the strangers among the stored members of a ranking, and return the others."""
        if not self.is_sharded:
            return members
        own = self.index.split(members, lambda found: self._member_of(found[0]))
        kept = own.pop(side.part, [])
        for stored, _ in chain.from_iterable(own.values()):
            self.note(side, self._member_of(stored)).add((name, stored))
        return kept

    def leave_out_memberships(
        self, side: ComparedPart, memberships: Mapping[bytes, bytes]
    ) -> Mapping[bytes, bytes]:
        """Note the strangers among members with memberships, and return the others."""
        if not self.is_sharded:
            return memberships
        own = self.index.split(memberships)
        kept = own.pop(side.part, [])
        for member in chain.from_iterable(own.values()):
            self.note(side, member)
        return {member: memberships[member] for member in kept}

    def note(self, side: ComparedPart, member: bytes) -> set[Occurrence]:
        found = self.found[side]
        return found.setdefault(member, set()) if len(found) < _MANY else found.get(member, set())

    def settle(self, report: Report, *, repair: bool) -> None:
        """Report strangers, and remove them with ``repair``."""
        for side, members in self.found.items():
            standings = side.store.read_members(side.generation, members)
            why = f"in the shard {side.part.name}, which isn't its own"
            for member, standing in zip(members, standings, strict=True):
                report.add(Example(member.decode(errors="backslashreplace"), None, standing.score, why))
            if repair:
                remove(side, list(members))
                # Also from facet rankings that no membership names.
                occurrences = list(chain.from_iterable(members.values()))
                side.store.find_strays(side.generation, occurrences, repair=True)
                after = side.store.read_members(side.generation, members)
                report.repaired += sum(one.score is None and not one.membership for one in after)
