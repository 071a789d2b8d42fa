"""Distinct values are counted as members enter and leave their ranking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]


def recount(run: Run, leaving: list[str], entering: list[Any]) -> None:
    """Count for members that leave, and pairs of a score and a member that enter."""
    code = """
      local leaving, entering = {unpack(ARGV, 2, 1 + ARGV[1])}, {unpack(ARGV, 2 + ARGV[1])}
      change_beside(KEYS[1], leaving, entering, 0)"""
    run("beside", code, ["ranking"], [len(leaving), *leaving, *entering], "django_zrank.dense")


def counted(zrank: Redis) -> dict[str, int]:
    counts: Any = zrank.hgetall("ranking:counts")
    listed = {
        value.decode(): score for value, score in zrank.zrange("ranking:values", 0, -1, withscores=True)
    }
    assert listed == {value.decode(): float(value) for value in counts}
    return {value.decode(): int(count) for value, count in counts.items()}


@pytest.fixture(autouse=True)
def filled(run: Run, zrank: Redis) -> None:
    """Three members at two values, counted."""
    recount(run, [], [5, "1", 5, "2", 7, "3"])
    zrank.zadd("ranking", {"1": 5, "2": 5, "3": 7})


@pytest.mark.parametrize(
    ("leaving", "entering", "expected"),
    [
        ([], [], {"5": 2, "7": 1}),
        (["1"], [], {"5": 1, "7": 1}),
        (["3"], [], {"5": 2}),
        (["nobody"], [], {"5": 2, "7": 1}),
        (["1", "1"], [], {"5": 1, "7": 1}),
        ([], [7, "1"], {"5": 1, "7": 2}),
        ([], [5, "1"], {"5": 2, "7": 1}),
        ([], [8, "4", 9, "4"], {"5": 2, "7": 1, "9": 1}),
        (["3"], [7, "3"], {"5": 2, "7": 1}),
        (["1", "2", "3"], [2.5, "1"], {"2.5": 1}),
    ],
)
def test_each_counts_once(
    run: Run, zrank: Redis, leaving: list[str], entering: list[Any], expected: dict[str, int]
) -> None:
    recount(run, leaving, entering)
    assert counted(zrank) == expected
