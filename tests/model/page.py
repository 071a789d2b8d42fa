"""What the README beside this module says of each run and each guard."""

from __future__ import annotations

from functools import cache
from textwrap import fill

from .cases import CASES, GUARDS, HISTORIES, SHOWN_BY
from .search import Found


def line(name: str, found: Found) -> str:
    """Return a run's line of the table."""
    case = CASES[name]
    kills = "yes" if case.bounds.kills else "no"
    return f"| {name} | {case.about} | {kills} | {found.states:,} | {case.lane} |"


@cache
def found_without(guard: str, run: str = "") -> Found:
    """Search the run that shows why a guard is needed, or another one, without it."""
    return CASES[run or GUARDS[guard][0]].model(guard).run()


def history(name: str) -> str:
    """Return a history's line of the table: the rule that was missing, and the step of the
    shortest story at which something goes wrong."""
    guard = HISTORIES[name]
    run, rule = GUARDS[guard]
    other = SHOWN_BY.get(name, "")
    return f"| {name} | {rule} | {other or run} | {len(found_without(guard, other).story or ())} |"


def counterexample(guard: str) -> str:
    """Return what happens without a guard; ``AssertionError`` if nothing goes wrong."""
    found = found_without(guard)
    assert found.story is not None, f"nothing goes wrong without {guard!r}"
    story = fill(f"{'; '.join(found.story)}. Then: {found.wrong}.", 118)
    return f"{title(guard)}\n\n{story}\n"


def title(guard: str) -> str:
    """Return what stands above a counterexample."""
    run, rule = GUARDS[guard]
    return f"**{rule[0].upper()}{rule[1:]}.** Without it ({run}):"
