"""Runs of ``tests.torture.scores``, ``idle`` and ``releases``, of which some must fail: ``ZRANK_TORTURE=1``."""

from __future__ import annotations

import re

import pytest

from tests import settings as environment
from tests.torture.test_torture import LONG, torture

pytestmark = LONG


@pytest.mark.parametrize("redis", ["always", "everysec", "dump", "pair"])
@pytest.mark.parametrize("module", ["scores", "idle", "releases"])
def test_each_change_is_counted_once(pytestconfig: pytest.Config, module: str, redis: str) -> None:
    options = ("--redis", redis, "--seconds", 12, "--kills", 40, "--seed", 1)
    done = torture(pytestconfig, *options, module=f"tests.torture.{module}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^kills +40:", done.stdout, re.MULTILINE)
    assert re.search(r"^members +\d+ compared, 0 wrong$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("module", "broken", "redis"),
    [
        ("scores", "no_number", "always"),
        ("scores", "no_reconcile", "dump"),
        pytest.param(
            *("scores", "no_marks", "always"),
            marks=pytest.mark.skipif(
                environment.DATABASE == "sqlite", reason="a trigger changes no value that is being written"
            ),
        ),
        ("idle", "long_rest", "always"),
        ("releases", "no_merge", "always"),
    ],
)
def test_a_broken_protocol_is_caught(
    pytestconfig: pytest.Config, module: str, broken: str, redis: str
) -> None:
    options = ("--break", broken, "--redis", redis, "--seconds", 12, "--kills", 40)
    for seed in range(1, 5):  # how much falls into the gap is luck
        done = torture(pytestconfig, *options, "--seed", seed, module=f"tests.torture.{module}")
        if done.returncode:
            break
    assert done.returncode == 1
    assert re.search(r"^members +\d+ compared, [1-9]\d* wrong$", done.stdout, re.MULTILINE), done.stderr
