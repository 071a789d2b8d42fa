"""A short run of the driver, and three that must fail: so that we know that the long ones could."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import settings as environment
from tests.torture.options import BREAKS


def torture(config: pytest.Config, *options: object) -> subprocess.CompletedProcess[str]:
    """Run the driver on the database that the suite runs on, with a Redis and a database of its own."""
    command = [sys.executable, "-m", "tests.torture", "--database", environment.DATABASE, *options]
    return subprocess.run(
        [str(word) for word in command], cwd=config.rootpath, capture_output=True, text=True, timeout=300
    )


def test_nothing_is_wrong(pytestconfig: pytest.Config) -> None:
    done = torture(pytestconfig, "--seconds", 4, "--round", 4, "--kills", 20, "--lease", 1, "--seed", 1)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^kills +20:", done.stdout, re.MULTILINE)
    assert re.search(r"^members +\d{4,} compared, 0 wrong$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_protocol_is_caught(pytestconfig: pytest.Config, broken: str) -> None:
    # No rebuild and no new Redis: either would mend what is wrong. Few kills: the dead write nothing wrong.
    spared = ["--without", "rebuild", "redis-dump", "redis-empty", "database"]
    for seed, seconds in enumerate((3, 6, 12, 24, 48)):
        many = ["--writers", 16, "--kills", seconds, "--seconds", seconds, "--round", 3, "--seed", seed]
        done = torture(pytestconfig, "--break", broken, *many, *spared)
        if done.returncode:
            break

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^members +\d{4,} compared, [1-9]\d* wrong$", done.stdout, re.MULTILINE), done.stdout
