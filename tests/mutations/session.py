"""Runs of pytest: one finds out what each test runs; others change the app again and again, and run what may notice."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import hypothesis
import pytest

from django_zrank.redis import sending
from django_zrank.redis.scripts import Script
from tests.mutations.mutants import MODULES, ROOT, Mutant, files_of

__all__ = ["Covering", "Mutating"]

Covered = dict[str, tuple[float, list[str]]]
"""By test: its seconds, and the lines and scripts that it runs."""


class _Run:
    """What both kinds of runs have in common."""

    def pytest_collection(self) -> None:
        """No example is made smaller: that one fails is all there is to know."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutations", deadline=None, phases=phases, derandomize=True)
        hypothesis.settings.load_profile("mutations")


class Covering(_Run):
    """Writes the lines of the modules, and the scripts, that each test runs to a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, set[str]()
        self.found: Covered = {}
        files = (f"{module.replace('.', '/')}.py" for module in MODULES)
        self.files = {str(ROOT / file): file for file in files}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines, began = set(), monotonic()
        with self.traced():
            result = yield
        self.found[item.nodeid] = monotonic() - began, sorted(self.lines)
        return result

    @contextmanager
    def traced(self) -> Iterator[None]:
        sys.settrace(self.trace)
        threading.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is sending.words.__code__:
            script = frame.f_locals["call"].command
            if isinstance(script, Script):
                self.lines.update(files_of(script))
        elif file := self.files.get(frame.f_code.co_filename):
            self.lines.add(f"{file}:{frame.f_lineno}")
            return self.trace
        return None

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.found))


class Mutating(_Run):
    """Writes to a file which test notices each mutant, if any. Tests that fail without it, too, end the run."""

    def __init__(self, mutants: Sequence[Mutant], covered: Covered, path: Path, seconds: float) -> None:
        self.mutants, self.covered, self.path, self.seconds = mutants, covered, path, seconds
        self.failed = False
        self.noticed: Counter[str] = Counter()
        self.popularity = Counter(line for _, lines in covered.values() for line in lines)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with self.path.open("a", buffering=1) as file:
            for mutant in self.mutants:
                with mutant.applied():
                    names = (name for name in self.chosen(mutant) if self.fails(items[name], session))
                    name = next(names, None)
                file.write(f"{json.dumps([str(mutant), name])}\n")
                self.noticed[name or ""] += 1
                if name and self.fails(items[name], session):
                    os._exit(1)  # what it has left behind makes others fail
        return True

    def fails(self, item: pytest.Item, session: pytest.Session) -> bool:
        """Return True if a test fails."""
        self.failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=session)
        return self.failed

    def chosen(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line of a mutant: first those that have noticed most, then those that run what
        few others run right after it, then the quickest."""
        near = {f"{mutant.file}:{mutant.line + after}" for after in range(5)}
        rarities = {
            name: min((self.popularity[line] for line in near.intersection(lines)), default=0)
            for name, (_, lines) in self.covered.items()
            if mutant.place in lines
        }
        names = sorted(
            rarities, key=lambda name: (-self.noticed[name], rarities[name], self.covered[name][0])
        )
        seconds, chosen = 0.0, []
        for name in names:
            seconds += self.covered[name][0]
            if seconds > self.seconds:
                break
            chosen.append(name)
        return chosen
