"""Write the tables and the stories of this folder's README: ``python -m tests.model``. It takes six minutes."""

from __future__ import annotations

import sys

from tests.model import together
from tests.model.cases import CASES, GUARDS, HISTORIES
from tests.model.page import counterexample, history, line

sys.stdout.write("| run | what may happen | kills | states | where |\n| --- | --- | --- | --- | --- |\n")
for name, case in CASES.items():
    if case.lane != "too large":
        sys.stdout.write(f"{line(name, case.model().run())}\n")
sys.stdout.write("\n| history | rule that was missing | run | wrong at step |\n| --- | --- | --- | --- |\n")
for name in HISTORIES:
    sys.stdout.write(f"{history(name)}\n")
sys.stdout.write("\n")
for guard in GUARDS:
    sys.stdout.write(f"{counterexample(guard)}\n")
for run in together.RUNS:
    sys.stdout.write(f"{together.line(run, together.Model(run).run())}\n")
sys.stdout.write("\n")
for guard in together.GUARDS:
    sys.stdout.write(f"{together.lines(guard)}\n")
