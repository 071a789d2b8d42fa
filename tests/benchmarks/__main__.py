"""A small size of every measurement, one after the other: ``python -m tests.benchmarks``. Under five minutes."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

SMALL = {
    "recommend": "--members 100000 --band-holds 30000 --rounds 500",
    "rivals": "--members 10000,50000 --rounds 100",
    "leaderboard": "--members 100000 --rounds 200",
    "memory": "--members 50000",
    "rest": "--players 5000 --rounds 200 --seconds 0.3",
    "save": "--rows 5000 --rounds 300",
    "drain": "--rows 20000",
    "rebuild": "--members 100000 --rounds 3",
    "database": "--rows 20000 --rounds 3",
}
"""Each in a process of its own: it makes a database and servers of its own."""


def main() -> int:
    failed = []
    for name, options in SMALL.items():
        command = f"-m tests.benchmarks.{name} {options}"
        print(f"\n== python {command}", flush=True)
        began = perf_counter()
        if subprocess.run([sys.executable, *command.split()]).returncode:
            failed.append(name)
        print(f"({perf_counter() - began:.0f} s)", flush=True)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
