"""Short runs of the driver, and some that must fail: so that we know that the long ones could.

``ZRANK_TORTURE=1`` runs all of it, as the lane does that is called torture: minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Final

import pytest

from tests import settings as environment
from tests.torture.options import BREAKS

LONG = pytest.mark.skipif("ZRANK_TORTURE" not in os.environ, reason="takes minutes: ZRANK_TORTURE=1")

_REBUILDING: Final = ["rebuild", "redis-dump", "redis-empty", "database", "migration", "triggers"]
"""Events that repair, by a rebuild, what is wrong."""

_RUNS: Final = {
    "no_replay": ["--redis", "pair", "--without", *_REBUILDING],
    "no_guard_key": ["--redis", "cluster", "--without", *_REBUILDING, "failover", "back", "kill", "freeze"],
    "no_capture": ["--without", *_REBUILDING[:4], "writer", "drainer", "pause", "interrupt", "connection"],
}
"""Options that show each break soon; for the others: writers overtake each other, and are seldom killed."""

_BY_LUCK: Final = {"no_term", "one_refusal"}
"""Breaks that most rounds don't show. They fail in sync/test_failovers.py, and in sync/test_push.py and
model/test_code.py, whatever the seed."""


def torture(
    config: pytest.Config, *options: object, module: str = "tests.torture"
) -> subprocess.CompletedProcess[str]:
    """Run a driver on the database that the suite runs on, with a Redis and a database of its own."""
    command = [sys.executable, "-m", module, "--database", environment.DATABASE, *options]
    return subprocess.run(
        [str(word) for word in command], cwd=config.rootpath, capture_output=True, text=True, timeout=500
    )


def assert_nothing_is_wrong(done: subprocess.CompletedProcess[str], kills: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(f"^kills +{kills}:", done.stdout, re.MULTILINE)
    assert re.search(r"^members +\d{4,} compared, 0 wrong$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_nothing_is_wrong(pytestconfig: pytest.Config) -> None:
    """With failovers back and forth, and writes on both sides."""
    run = ["--redis", "pair", "--seconds", 6, "--round", 6, "--kills", 20, "--lease", 1, "--seed", 1]
    assert_nothing_is_wrong(torture(pytestconfig, *run), 20)


@LONG
@pytest.mark.parametrize(
    ("redis", "seconds"), [("single", 8), ("pair", 16), ("sentinel", 16), ("cluster", 16)]
)
def test_nothing_is_wrong_for_longer(pytestconfig: pytest.Config, redis: str, seconds: int) -> None:
    run = ["--redis", redis, "--seconds", seconds, "--round", 8, "--kills", 3 * seconds, "--seed", 2]
    assert_nothing_is_wrong(torture(pytestconfig, *run), 3 * seconds)


@LONG
def test_nothing_is_wrong_in_shards(pytestconfig: pytest.Config) -> None:
    run = ["--redis", "cluster", "--shards", 6, "--seconds", 16, "--round", 8, "--kills", 48, "--seed", 41]
    assert_nothing_is_wrong(torture(pytestconfig, *run), 48)


@LONG
@pytest.mark.parametrize("broken", sorted({*BREAKS} - _BY_LUCK))
def test_a_broken_protocol_is_caught(pytestconfig: pytest.Config, broken: str) -> None:
    """By one of fifteen rounds, after which the run ends."""
    # No rebuild and no new Redis: either would repair what is wrong. Few kills: the dead write nothing wrong.
    run = _RUNS.get(broken, ["--writers", 16, "--without", *_REBUILDING])
    kills = 90 * (4 if broken in _RUNS else 2)
    rounds = ["--seconds", 90, "--round", 6, "--kills", kills, "--seed", 0]
    done = torture(pytestconfig, "--break", broken, *rounds, *run)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^members +\d{4,} compared, [1-9]\d* wrong$", done.stdout, re.MULTILINE), done.stdout
