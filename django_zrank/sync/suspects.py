"""Members that look wrong: checked again until that is certain, then reported and perhaps repaired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import sleep
from typing import Any, Final

from ..codec.units import Number
from ..members import batched
from ..models import Mark
from ..store import Replaced, Standing
from .drain import drain
from .idle import sweep
from .push import begin
from .report import Example, Report
from .sides import ComparedPart, Occurrence, Sides, stands

__all__ = ["Suspects", "remove"]

_REMOVED: Final = 100
"""The most members that one call removes, with some ten commands each."""

_LOOKS: Final = 6
"""The most looks at a suspect that keeps changing."""

_PAUSE: Final = 0.1
"""Seconds before the second look; the pause grows by as much for each further look."""


class Suspects:
    """The members that look wrong in one comparison."""

    def __init__(self, sides: Sides, report: Report, *, repair: bool) -> None:
        self.sides, self.index = sides, sides.index
        self.report = report
        self.repairs = repair

        self.members: dict[bytes, Any] = {}
        """Member as Redis stores it -> its primary key, None if no row can have it."""

        self.strays: dict[bytes, set[Occurrence]] = {}
        """Member -> rankings that it is in, but that its membership doesn't name."""

    def add(self, member: bytes, pk: Any) -> None:
        """Suspect a member, and settle all suspects if they fill a batch."""
        self.members[member] = pk
        if len(self.members) >= self.sides.size:
            self.settle()

    def settle(self) -> None:
        """Look at the suspects again."""
        if not self.members:
            return
        pending, self.members = self.members, {}
        # With triggers, marks tell which changes are on their way. Otherwise, what stays wrong for a while is wrong.
        certain = self.report.capture.mode == "triggers" and self.report.capture.works
        before: dict[bytes, Example] = {}
        for look in range(_LOOKS):
            sleep(_PAUSE * look)
            wrong, moving = self.look(pending)
            if not certain:
                moving |= {member for member, example in wrong.items() if before.get(member) != example}
                before = wrong
            self.report_confirmed(
                {member: pk for member, pk in pending.items() if member in wrong.keys() - moving}, wrong
            )
            pending = {member: pk for member, pk in pending.items() if member in moving}
            if not pending:
                break
        self.report.unsettled += len(pending)

    def look(self, suspects: Mapping[bytes, Any]) -> tuple[dict[bytes, Example], set[bytes]]:
        """Return the suspects that are wrong, and those that are just changing.

        The order of the reads matters: Redis, the row, marks, Redis again. If no mark waits for a member, every change
        in its row has been written to Redis; and if it wasn't written between the two reads of Redis, both sides are of
        the same state of the row.
        """
        sweep(self.index)
        drain(self.index)
        before = self.sides.read_redis(suspects)
        rows = self.sides.read_database(suspects)
        in_flight = self.sides.in_flight(suspects)
        after = self.sides.read_redis(suspects)
        occurrences = [occurrence for member in suspects for occurrence in self.strays.get(member, ())]
        stray = dict(zip(occurrences, self.sides.find_strays(occurrences), strict=True))
        wrong: dict[bytes, Example] = {}
        moving: set[bytes] = set()
        for member, first, second in zip(suspects, before, after, strict=True):
            expected = rows.get(member)
            astray = {at[0]: score for at in self.strays.get(member, ()) if (score := stray[at]) is not None}
            if expected and member in self.sides.agreed and second.score is not None:
                expected = second.score, expected[1]  # it has changed since, in Redis
            if stands(second, expected) and not astray:
                continue
            if first != second or member in in_flight:
                moving.add(member)
            else:
                wrong[member] = _example(member, expected, second, astray, self.index.layout.width)
        return wrong, moving

    def report_confirmed(self, confirmed: Mapping[bytes, Any], examples: Mapping[bytes, Example]) -> None:
        """Report wrong members, and repair them if requested."""
        for member in confirmed:
            self.report.add(examples[member])
        if confirmed and self.repairs:
            self.repair(confirmed)
            self.report.repaired += len(confirmed) - len(self.look(confirmed)[0])
        for member in confirmed:
            self.strays.pop(member, None)

    def repair(self, confirmed: Mapping[bytes, Any]) -> None:
        """Leave a mark for each member. A member that no row can have is removed, because no mark could name it.

        Strays are removed after the marks are worked off, when memberships are right.
        """
        texts = (self.index.to_text(pk) for pk in confirmed.values() if pk is not None)
        Mark.objects.using(self.sides.using).bulk_create(
            Mark(index=self.index.name, member=text) for text in texts
        )
        impossible = [member for member, pk in confirmed.items() if pk is None]
        for part, members in self.index.split(impossible).items():
            remove(self.sides.parts[part], members)
        occurrences = [occurrence for member in confirmed for occurrence in self.strays.get(member, ())]
        if occurrences:
            drain(self.index)
            self.sides.find_strays(occurrences, repair=True)


def remove(side: ComparedPart, members: Sequence[bytes]) -> None:
    for piece in batched(members, _REMOVED):
        changes = [(member, None, b"") for member in piece]
        if side.store.apply_changes(begin(side.part, side.store), changes) is None:
            raise Replaced


def _example(
    member: bytes,
    expected: tuple[Number, bytes] | None,
    found: Standing,
    astray: Mapping[str, float],
    width: int,
) -> Example:
    score, membership = expected or (None, b"")
    tie, wanted = _names(membership, width)
    found_tie, names = _names(found.membership, width)
    actual = (names - set(found.absent.split(b"\0"))) | {name.encode() for name in astray if name}
    why = []
    if (found.score is not None and expected and tie != found_tie) or "" in astray:
        why.append("other tie bytes")
    if membership and not found.membership:
        why.append("no membership")
    if expected and (lacking := wanted - actual):
        why.append(f"not in {_list(lacking)}")
    if surplus := actual - wanted:
        why.append(f"also in {_list(surplus)}")
    there = found.score if found.score is not None else next(iter(astray.values()), None)
    return Example(member.decode(errors="backslashreplace"), score, there, "; ".join(why))


def _names(membership: bytes, width: int) -> tuple[bytes, set[bytes]]:
    """Return the tie bytes of a membership, and the names of its facet rankings."""
    length = width or (9 if membership.startswith(b"\0") else 0)
    return membership[:length], set(filter(None, membership[length:].split(b"\0")))


def _list(names: Iterable[bytes]) -> str:
    return ", ".join(sorted(name.decode(errors="backslashreplace") for name in names))
