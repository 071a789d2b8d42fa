"""What ``stories.md`` says of each run and each guard."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Final

from . import together
from .cases import CASES, GUARDS, HISTORIES, SHOWN_BY
from .search import Found

PATH: Final = Path(__file__).with_name("stories.md")

_BEGINNING: Final = """\
# Runs and stories of the model

Written by `python -m tests.model`; the tests compare this page with what they find. [The README](README.md) says
what the model is.
"""

_RUNS: Final = """\
## Runs

Nothing goes wrong in any of these. In runs with kills, each process may also be killed before any step. In the others
it may stop for good, but it isn't checked that the remaining ones lead to a healthy index.
"""

_HISTORIES: Final = """\
## Histories that were found by hand

Reviews found these ways to be wrong while the index was healthy. Each time a rule was missing. Without that rule, the
search finds the history, too, in the number of steps in the last column; with it, the same run finds nothing.
"""

_STORIES: Final = """\
## Why each rule is there

The same search without one rule of the protocol finds these stories.
"""

_TOGETHER: Final = """\
## Rows read once for several indexes
"""

_TABLE: Final = "| run | what may happen | kills | states | where |\n| --- | --- | --- | --- | --- |"


def pieces() -> Iterator[str]:
    """Yield the lines and paragraphs of the page, from a search of everything that isn't too large."""
    yield _BEGINNING
    yield _RUNS
    yield _TABLE
    for name, case in CASES.items():
        if case.lane != "too large":
            yield line(name, case.model().run())
    yield ""
    yield _HISTORIES
    yield "| history | rule that was missing | run | wrong at step |\n| --- | --- | --- | --- |"
    yield from map(history, HISTORIES)
    yield ""
    yield _STORIES
    yield from map(counterexample, GUARDS)
    yield _TOGETHER
    yield _TABLE
    for run in together.RUNS:
        yield together.line(run, together.Model(run).run())
    yield ""
    yield from map(together.lines, together.GUARDS)


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
