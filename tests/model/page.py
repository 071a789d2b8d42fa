"""What ``docs/model.md`` says of each run and each guard."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from . import scores, sync
from .cases import CASES, SHOWN_BY
from .search import Found

GUARDS = sync.GUARDS | scores.GUARDS


def line(name: str, found: Found[Any]) -> str:
    """Return a run's line of the table."""
    case = CASES[name]
    return f"| {name} | {case.about} | {found.states:,} | {case.lane} |"


def counterexample(guard: str) -> str:
    """Return what happens without a guard; ``AssertionError`` if nothing goes wrong."""
    found = CASES[SHOWN_BY[guard]].model(guard).run()
    assert found.story is not None, f"nothing goes wrong without {guard!r}"
    story = fill(f"{'; '.join(found.story)}. Then: {found.wrong}.", 118)
    return f"**{GUARDS[guard][0].upper()}{GUARDS[guard][1:]}.** Without it ({SHOWN_BY[guard]}):\n\n{story}\n"
