"""Leave out each statement of pushes, drains, marks and flushes in turn, and print what no test notices:
``python -m tests.mutations``.

Tests run that pass through the statement, as many as take ``--seconds`` together; then, for what they don't notice, a
torture of a minute. It takes hours. ``--only sync/push.py:14`` leaves out what is at places that begin like this.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.mutations.equivalent import EQUIVALENT

TESTS: Final = (
    "tests/sync",
    "tests/lua",
    "tests/parts",
    "tests/outside",
    "tests/model/test_code.py",
    "tests/model/test_guards.py",
)

SCORES: Final = (
    *("flush", "take_pending", "confirm_flush", "settle_flush", "reconcile_pending", "drop_pending"),
    *("change_scores", "increment_scores", "writable", "ruled", "held", "pending", "returns", "sums"),
)
"""Files that the torture of scores runs."""


def main() -> int:
    options = parse_options()
    if options.torture_of is not None:
        return torture(options.torture_of, options.torture)
    from tests.mutations.session import Covering, Mutating

    if options.cover:
        return run_pytest(Covering(options.covered), options.tests)
    found = [mutant for mutant in all_mutants() if str(mutant).startswith(tuple(options.only))]
    chosen = [mutant for mutant in found if mutant.name not in EQUIVALENT]
    if options.results:
        done = len(results(options.results))
        todo = chosen[options.part :: options.processes][done:]
        covered = json.loads(options.covered.read_text())
        return run_pytest(Mutating(todo, covered, options.results, options.seconds), options.tests)
    os.nice(10)
    with tempfile.TemporaryDirectory() as folder:
        covered = options.covered or Path(folder, "covered.json")
        if not covered.exists():
            start("--cover", f"--covered={covered}", "--tests", *options.tests).check_returncode()
        with ThreadPoolExecutor(options.processes) as threads:
            parts = threads.map(partial(run_part, options, covered, Path(folder)), range(options.processes))
            left = [mutant for part in parts for mutant in part]
            sys.stdout.write(
                f"{len(chosen)} mutants, of which tests don't notice {len(left)}. "
                f"{len(found) - len(chosen)} others are known to make no difference\n"
            )
            if options.torture:
                numbers = {str(mutant): number for number, mutant in enumerate(all_mutants())}
                tortured = threads.map(lambda name: survives(numbers[name], options.torture), left)
                left = [name for name, is_left in zip(left, tortured, strict=True) if is_left]
    for name in left:
        sys.stdout.write(f"Nothing notices {name}\n")
    return int(bool(left))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="Places that are left out. Default: all.")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="Files or folders of tests.")
    parser.add_argument("--processes", type=int, default=2, help="How many run at once. Default: 2.")
    parser.add_argument("--seconds", type=float, default=20, help="Of tests, for each place. Default: 20.")
    parser.add_argument("--torture", type=float, default=60, help="Seconds of torture; 0: none. Default: 60.")
    parser.add_argument(
        "--covered", type=Path, help="A file that keeps what each test runs for the next time."
    )
    for name in ("--cover", "--results", "--part", "--torture-of"):  # of the processes that it starts
        kind: dict[str, Any] = {"--cover": {"action": "store_true"}, "--results": {"type": Path}}.get(
            name, {"type": int}
        )
        parser.add_argument(name, help=argparse.SUPPRESS, **kind)
    return parser.parse_args()


def all_mutants() -> list[Any]:
    from tests.mutations.mutants import mutants

    return list(mutants())


def start(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.mutations", *arguments]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def run_part(options: argparse.Namespace, covered: Path, folder: Path, part: int) -> list[str]:
    """Run every so many-th mutant. Return those that no test notices."""
    path = folder / f"{part}.jsonl"
    path.touch()
    arguments = [
        f"--covered={covered}",
        f"--results={path}",
        f"--part={part}",
        f"--seconds={options.seconds}",
    ]
    arguments += [f"--processes={options.processes}", "--only", *options.only, "--tests", *options.tests]
    # A run ends early if a mutant has left behind what makes other tests fail; or if it ends the process.
    while start(*arguments).returncode:
        continue
    return [mutant for mutant, test in results(path) if test is None]


def results(path: Path) -> list[tuple[str, str | None]]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def run_pytest(plugin: object, tests: Sequence[str]) -> int:
    import pytest

    # What is changed, and Hypothesis, have been imported before pytest begins.
    arguments = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "--timeout=60",
    ]
    return int(pytest.main([*arguments, *tests], plugins=[plugin]))


def survives(number: int, seconds: float) -> bool:
    """Return True if a torture of the app with one mutant finds nothing wrong."""
    return start(f"--torture-of={number}", f"--torture={seconds}").returncode == 0


def torture(number: int, seconds: float) -> int:
    """Run a torture with one mutant: of scores, or of everything else."""
    from tests.torture import __main__ as command
    from tests.torture import scores

    def leave_out() -> None:
        mutant.applied().__enter__()

    def set_up(*args: Any) -> None:
        set_up_django(*args)
        leave_out()

    mutant, set_up_django = all_mutants()[number], command.set_up_django
    sys.argv[1:] = [f"--seconds={seconds:g}", f"--kills={3 * seconds:.0f}"]
    if Path(mutant.file).stem in SCORES:
        sys.argv += ["--redis=pair", "--break=mutant"]
        return scores.main(about=scores.__doc__ or "", breaks={"mutant": leave_out})
    command.set_up_django = set_up
    sys.argv += ["--redis=pair", "--without", "rebuild"]  # which repairs what is wrong
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
