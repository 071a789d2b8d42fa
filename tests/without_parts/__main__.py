"""Delete parts from a copy of the checkout, and run what is left.

    python -m tests.without_parts                      nothing, each part in turn, and all together: a smoke test each
    python -m tests.without_parts NAME …               these, each in turn
    python -m tests.without_parts --all                all together
    … --tests [PATH …]                                 the kernel's tests, too, or those of these paths
    python -m tests.without_parts --here NAME …        delete parts from this checkout; run nothing

Prints a table. The exit status is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from .parts import PARTS, ROOT, delete, with_dependents

OF_THE_WHOLE = (
    "tests/benchmarks",
    "tests/example",
    "tests/mutations",
    "tests/outside/test_installed_apps.py",
    "tests/test_docs.py",
    "tests/test_tutorial.py",
    "tests/torture",
)
"""Tests of the docs, of the example project, and of all parts at once."""


class Outcome(NamedTuple):
    deleted: str
    smoke: str
    seconds: float
    tests: str
    output: str

    @property
    def ok(self) -> bool:
        return self.smoke == "ok" and not self.tests.startswith("FAILED")


def call(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def without(names: Sequence[str], title: str, tests: Sequence[str] | None) -> Outcome:
    """Try a copy of the checkout from which parts are deleted. ``tests``: arguments of pytest; None for no tests."""
    with tempfile.TemporaryDirectory(prefix="zrank-without-") as temporary:
        folder = Path(temporary) / "checkout"
        # With what Python has compiled: times of files are kept, so that it counts.
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".[!.]*", "*.sqlite3", "node_modules"))
        delete(folder, names)
        began = monotonic()
        smoke = call(folder, "-m", "tests.without_parts.smoke")
        seconds, output, status = monotonic() - began, "", "ok"
        if smoke.returncode:
            status, output = "FAILED", smoke.stdout
        said = ""
        if tests is not None and any(PARTS[name].runs_tests for name in names):
            said = "run on it"
        elif tests is not None:
            run = call(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
            last = next((line for line in reversed(run.stdout.splitlines()) if " in " in line), "")
            said = re.sub(r"[= ]* in .*", "", last).strip("= ")
            if run.returncode:
                said, output = f"FAILED: {said}", output + run.stdout
        return Outcome(title, status, seconds, said, output)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.without_parts",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--all", action="store_true", help="all parts together")
    parser.add_argument("--tests", nargs="*", metavar="PATH", help="run the kernel's tests, too")
    parser.add_argument("--here", action="store_true", help="delete the parts from this checkout")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="runs at a time; default: 2")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}: {', '.join(PARTS)}")
    if options.here:
        delete(ROOT, options.names)
        return 0
    there = [name for name, part in PARTS.items() if part.is_there]
    each = options.names or ([] if options.all else there)
    runs = [
        ([name], ", ".join([name, *(one for one in with_dependents([name]) if one != name)])) for name in each
    ]
    if not options.names and not options.all:
        runs.insert(0, ([], "(nothing)"))
    if options.all or not options.names:
        runs.append((there, "all"))
        if options.tests is not None:
            runs.append(
                ([name for name in there if not PARTS[name].runs_tests], "all that tests don't run on")
            )
    tests = options.tests
    if tests == []:
        tests = [f"--ignore={path}" for path in OF_THE_WHOLE]
    with ThreadPoolExecutor(max_workers=options.j) as pool:
        outcomes = list(pool.map(lambda run: without(*run, tests), runs))
    for outcome in outcomes:
        if outcome.output:
            print(f"\n##### without {outcome.deleted}\n{outcome.output}")
    width = max(len(outcome.deleted) for outcome in outcomes)
    print(f"{'without':{width}}  smoke            tests")
    for deleted, smoke, seconds, said, _ in outcomes:
        print(f"{deleted:{width}}  {smoke:6} {seconds:6.1f} s  {said}")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
