"""Every measurement, one after the other: ``python -m tests.benchmarks [--members N] [--into FOLDER]``.

Of a small size, in less than five minutes. With ``--members 20000000`` of the large ones: rivals and rebuilds at steps
up to so many members, everything else as by itself, which takes half an hour. Figures (JSON) and plots (PNG) go into a
folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

SMALL = {
    "rivals": "--members 10000,50000 --rounds 100",
    "replica": "--members 50000 --rounds 500 --seconds 0.3",
    "shards": "--members 20000 --shards 3,16 --rounds 50",
    "leaderboard": "--members 100000 --rounds 200",
    "client": "--members 20000 --rounds 500",
    "pairing": "--members 50000 --rounds 500",
    "audience": "--viewers 10000 --rounds 40",
    "memory": "--members 50000",
    "path": "",
    "concurrent": "--members 20000 --rounds 5",
    "shown": "--rows 20000 --rounds 200",
    "rest": "--players 5000 --rounds 200 --seconds 0.3",
    "save": "--rows 5000 --rounds 300",
    "drain": "--rows 20000",
    "windows": "--rows 5000 --rounds 3 --saves 100",
    "bulk": "--rows 5000",
    "watch": "--seconds 5",
    "scores": "--rows 20000 --rounds 300",
    "rebuild": "--members 20000,100000 --rounds 3",
    "hold": "--members 20000",
    "pieces": "--members 20000",
    "database": "--rows 20000 --rounds 3",
    "failover": "--only killed --seconds 6",
}
"""Each in a process of its own: it makes a database and servers of its own."""

GROWING = ("rivals", "rebuild", "hold")
"""Benchmarks that take numbers of members up to a maximum."""

PLOTTED = (*GROWING, "failover")
"""Benchmarks that draw a plot."""

STEPS = (10_000, 100_000, 1_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, metavar="N", help="Measure at large, with up to so many.")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="Default: a new temporary one.")
    options = parser.parse_args()
    folder = options.into or Path(tempfile.mkdtemp(prefix="zrank-benchmarks-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, small in SMALL.items():
        words = [*large(name, options.members).split()] if options.members else small.split()
        words += ["--json", str(folder / f"{name}.json")]
        if name in PLOTTED and find_spec("matplotlib") is None:
            print("\nNo plots: pip install matplotlib")
        elif name in PLOTTED:
            words += ["--plot", str(folder / f"{name}.png")]
        command = ["-m", f"tests.benchmarks.{name}", *words]
        print(f"\n== python {' '.join(command)}", flush=True)
        began = perf_counter()
        if subprocess.run([sys.executable, *command]).returncode:
            failed.append(name)
        print(f"({perf_counter() - began:.0f} s)", flush=True)
    print(f"\n{folder}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def large(name: str, members: int) -> str:
    """The options of a large run: nothing but the sizes where there are some."""
    if name not in GROWING:
        return ""
    if name == "hold":  # a plot of each size, of all operations
        return "--members 100000,1000000"
    steps = [step for step in STEPS if step < members]
    return f"--members {','.join(map(str, [*steps, members]))}"


if __name__ == "__main__":
    sys.exit(main())
