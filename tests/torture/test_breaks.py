"""Ways to break the protocol: that each still finds what it breaks, long before the lane that runs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import django

django.setup()
from tests.torture.breaks import BREAKS

for break_it in BREAKS.values():
    break_it()
"""


def test_each_finds_what_it_breaks(pytestconfig: pytest.Config) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=pytestconfig.rootpath,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
