"""An explicit-state search, breadth first: every order of steps, and the shortest story of what goes wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)

Step = tuple[str, State, bool]
"""What happens, the state that it leads to, and whether it is a fault, which nobody may count on."""


class Found(NamedTuple, Generic[State]):
    states: int
    story: list[str] | None = None
    """The steps that lead to what is wrong; None if nothing is."""

    wrong: str = ""
    state: State | None = None


def search(
    first: State,
    steps: Callable[[State], Iterable[Step[State]]],
    *,
    wrong: Callable[[State], str],
    calm: Callable[[State], bool],
    alike: Callable[[State], State],
    limit: int = 3_000_000,
) -> Found[State]:
    """Visit every state that ``first`` leads to. It is wrong if ``wrong()`` says why; or if no way without a fault
    leads from it to one that is ``calm()``: a deadlock or a livelock.

    ``alike``: returns one state for all that differ in names only. It raises ``OverflowError`` beyond ``limit`` states.
    """
    numbers: dict[State, int] = {alike(first): 0}
    came = [0]
    ways: defaultdict[int, list[int]] = defaultdict(list)
    ends: list[int] = []
    waiting = list(numbers)

    def found(number: int, why: str) -> Found[State]:
        way, state = [], waiting[number]
        while number:
            way.append(waiting[number])
            number = came[number]
        return Found(len(waiting), _story(first, steps, alike, way[::-1]), why, state)

    for number, state in enumerate(waiting):
        if why := wrong(state):
            return found(number, why)
        if calm(state):
            ends.append(number)
        for _, after, is_fault in steps(state):
            after = alike(after)
            if after not in numbers:
                if len(numbers) == limit:
                    raise OverflowError(f"more than {limit:,} states")
                numbers[after] = len(waiting)
                waiting.append(after)
                came.append(number)
            if not is_fault:
                ways[numbers[after]].append(number)
    reached = set(ends)
    while ends:
        for before in ways[ends.pop()]:
            if before not in reached:
                reached.add(before)
                ends.append(before)
    if len(reached) < len(waiting):
        stuck = next(number for number in range(len(waiting)) if number not in reached)
        return found(stuck, "no way leads from here to health")
    return Found(len(waiting))


def _story(
    first: State,
    steps: Callable[[State], Iterable[Step[State]]],
    alike: Callable[[State], State],
    way: list[State],
) -> list[str]:
    """Return the labels on the way through these states. It is gone once more without ``alike()``, which renames."""
    story: list[str] = []
    for state in way:
        label, first, _ = next(step for step in steps(first) if alike(step[1]) == state)
        story.append(label)
    return story


def ranked(numbers: Iterable[int], *, gap: int = 1) -> dict[int, int]:
    """Return smaller numbers in the same order, at most ``gap`` apart. 0 stays 0."""
    found = {0: 0}
    before = rank = 0
    for number in sorted(set(numbers) - {0}):
        rank += min(number - before, gap)
        found[number], before = rank, number
    return found


def renamed(names: Iterator[int] | Iterable[int]) -> dict[int, int]:
    """Return small numbers by first occurrence: only identity matters. 0 stays 0."""
    found = {-1: -1, 0: 0}
    for name in names:
        found.setdefault(name, len(found) - 1)
    return found
