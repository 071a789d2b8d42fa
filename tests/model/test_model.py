"""The model: nothing goes wrong in any order of steps, and without any of its guards something does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.broken import BROKEN
from tests.model.cases import CASES, GUARDS, HISTORIES, LOST, SHOWN_BY
from tests.model.page import PATH, counterexample, history, line

PAGE = PATH.read_text()

LONG = ("term", "history", "pieces", "idle watcher", "abandoned", "late reads", "older tokens")
"""Guards whose counterexamples take long to find."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if case.lane == "slow" else [])
        for name, case in CASES.items()
        if case.lane in ("tests", "slow")
    ],
)
def test_nothing_goes_wrong(name: str) -> None:
    found = CASES[name].model().run()
    assert found.story is None, f"{found.wrong}: {found.story}"
    assert line(name, found) in PAGE, line(name, found)


@pytest.mark.parametrize(
    "guard", [pytest.param(guard, marks=[pytest.mark.slow] if guard in LONG else []) for guard in GUARDS]
)
def test_without_a_guard_something_goes_wrong(guard: str) -> None:
    story = counterexample(guard)
    assert story in PAGE, story


@pytest.mark.parametrize("name", HISTORIES)
def test_what_was_found_by_hand_is_found(name: str) -> None:
    """On the rules as they were; on the rules as they are, the same run finds nothing (above)."""
    assert history(name) in PAGE, history(name)
    assert CASES[SHOWN_BY.get(name) or GUARDS[HISTORIES[name]][0]].lane in ("tests", "slow")


def test_every_guard_is_listed() -> None:
    source = "".join(Path(__file__).with_name(name).read_text() for name in ("sync.py", "scores.py"))
    named = set(re.findall(r'has\("([^"]+)"\)', source))
    assert named == set(GUARDS)
    assert (
        f"For {len(BROKEN)} of the {len(GUARDS)} rules" in Path(__file__).with_name("README.md").read_text()
    )


def test_every_run_is_about_something_that_may_happen() -> None:
    """A name in ``may`` that the model doesn't know would make a run pass, as nothing happens in it."""
    source = "".join(Path(__file__).with_name(name).read_text() for name in ("sync.py", "scores.py"))
    known = set(re.findall(r'"(\w+)" (?:not )?in (?:self\.bounds\.)?may\b', source))
    known |= set(re.findall(r'^            "(\w+)": \(', source, re.MULTILINE))
    assert set().union(*(case.bounds.may for case in CASES.values())) <= known
    assert LOST.bounds.may <= known


def test_every_run_has_its_line() -> None:
    assert all(
        f"| {name} | {case.about} |" in PAGE for name, case in CASES.items() if case.lane != "too large"
    )


def test_a_database_that_loses_commits_is_outside() -> None:
    """What the documentation names as outside of the guarantee goes wrong: the search finds it, and nothing notices."""
    assert LOST.model().run().story is not None
