"""Runs of ``tests.torture.scores``, of which one must fail: ``ZRANK_TORTURE=1``."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests import settings as environment

pytestmark = pytest.mark.skipif("ZRANK_TORTURE" not in os.environ, reason="takes minutes: ZRANK_TORTURE=1")


def torture(config: pytest.Config, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.torture.scores", "--database", environment.DATABASE, *options]
    return subprocess.run(
        [str(word) for word in command], cwd=config.rootpath, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("redis", ["always", "everysec", "dump", "pair"])
def test_each_change_is_counted_once(pytestconfig: pytest.Config, redis: str) -> None:
    done = torture(pytestconfig, "--redis", redis, "--seconds", 12, "--kills", 40, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^kills +40:", done.stdout, re.MULTILINE)
    assert re.search(r"^members +\d+ compared, 0 wrong$", done.stdout, re.MULTILINE)


def test_a_flush_settled_without_its_number_is_caught(pytestconfig: pytest.Config) -> None:
    done = torture(pytestconfig, "--break", "no_number", "--seconds", 12, "--kills", 40, "--seed", 1)
    assert done.returncode == 1
    assert re.search(r"^members +\d+ compared, [1-9]\d* wrong$", done.stdout, re.MULTILINE), done.stderr
