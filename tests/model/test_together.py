"""Two indexes whose rows are read once for both: without any of the rules, some order of steps goes wrong."""

from __future__ import annotations

import pytest

from tests.model.page import PATH
from tests.model.together import GUARDS, RUNS, Model, line, lines

PAGE = PATH.read_text()


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[pytest.mark.slow] if "two" in run else []) for run in RUNS]
)
def test_nothing_goes_wrong(run: str) -> None:
    found = Model(run).run()
    assert found.story is None, f"{found.wrong}: {found.story}"
    assert line(run, found) in PAGE


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_something_goes_wrong(guard: str) -> None:
    assert lines(guard) in PAGE, lines(guard)
