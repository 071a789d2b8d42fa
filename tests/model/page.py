"""What ``docs/model.md`` says of each run and each guard."""

from __future__ import annotations

from functools import cache
from textwrap import fill
from typing import Any

from . import scores, sync
from .cases import CASES, HISTORIES, SHOWN_BY
from .search import Found

GUARDS = sync.GUARDS | scores.GUARDS


def line(name: str, found: Found[Any]) -> str:
    """Return a run's line of the table."""
    case = CASES[name]
    return f"| {name} | {case.about} | {found.states:,} | {case.lane} |"


@cache
def found_without(guard: str) -> Found[Any]:
    """Search the run that shows why a guard is needed, without it."""
    return CASES[SHOWN_BY[guard]].model(guard).run()


def history(name: str) -> str:
    """Return a history's line of the table: the rule that was missing, and the step of the
    shortest story at which something goes wrong."""
    guard = HISTORIES[name]
    return f"| {name} | {GUARDS[guard]} | {SHOWN_BY[guard]} | {len(found_without(guard).story or ())} |"


def counterexample(guard: str) -> str:
    """Return what happens without a guard; ``AssertionError`` if nothing goes wrong."""
    found = found_without(guard)
    assert found.story is not None, f"nothing goes wrong without {guard!r}"
    story = fill(f"{'; '.join(found.story)}. Then: {found.wrong}.", 118)
    return f"**{GUARDS[guard][0].upper()}{GUARDS[guard][1:]}.** Without it ({SHOWN_BY[guard]}):\n\n{story}\n"
