"""An explicit-state search, breadth first: every order of steps, and the shortest story of what goes wrong."""

from __future__ import annotations

import gc
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

State = TypeVar("State")

Step = tuple[str, State, bool]
"""What happens, the state that it leads to, and whether it is a fault, which nobody may count on."""


class Found(NamedTuple):
    states: int
    story: list[str] | None = None
    """The steps that lead to what is wrong; None if nothing is."""

    wrong: str = ""


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: states are tuples that refer to no state before them, and to look through all of
    them again and again takes two fifths of a search's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@uncollected()
def search(
    first: State,
    steps: Callable[[State], Iterable[Step[State]]],
    *,
    wrong: Callable[[State], str],
    calm: Callable[[State], bool],
    key: Callable[[State], Hashable],
    limit: int = 3_000_000,
) -> Found:
    """Visit every state that ``first`` leads to. It is wrong if ``wrong()`` says why; or if no way without a fault
    leads from it to one that is ``calm()``: a deadlock or a livelock. The story of such a state ends, if possible,
    where nothing happens any more.

    States with the same ``key()`` are one. It raises ``OverflowError`` beyond ``limit`` states.
    """
    numbers = {key(first): 0}
    came = [(0, "")]
    ways: defaultdict[int, list[int]] = defaultdict(list)
    calm_ones: list[int] = []
    ends: list[int] = []  # in which nothing happens any more, but for faults
    waiting = deque([first])

    def found(number: int, why: str) -> Found:
        story = []
        while number:
            number, what = came[number]
            story.append(what)
        return Found(len(came), story[::-1], why)

    number = -1
    while waiting:
        state, number = waiting.popleft(), number + 1
        if why := wrong(state):
            return found(number, why)
        if calm(state):
            calm_ones.append(number)
        is_end = True
        for what, after, is_fault in steps(state):
            other = numbers.setdefault(key(after), len(came))
            is_end &= other == number or is_fault
            if other == len(came):
                if other == limit:
                    raise OverflowError(f"more than {limit:,} states")
                came.append((number, what))
                waiting.append(after)
            if not is_fault:
                ways[other].append(number)
        if is_end:
            ends.append(number)
    reached = set(calm_ones)
    while calm_ones:
        new = [before for before in ways[calm_ones.pop()] if before not in reached]
        reached.update(new)
        calm_ones += new
    if len(reached) < len(came):
        stuck = next(number for number in (*ends, *range(len(came))) if number not in reached)
        return found(stuck, "no way leads from here to health")
    return Found(len(came))
