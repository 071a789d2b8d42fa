"""The ends of a band, in scores, in exact scores and in ranks, against a count."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank.codec.order import Order
from tests.testapp.models import Competitor

Run = Callable[..., Any]

SCORES = [-5, -5, 0, 1, 1, 1, 7]


@pytest.fixture
def ranking(zrank: Redis) -> str:
    zrank.zadd("ranking", {f"m{at}": score for at, score in enumerate(SCORES)})
    return "ranking"


@pytest.mark.parametrize("below", [0, 1, 5, 2**64])
@pytest.mark.parametrize("above", [0, 6, 2**64])
@pytest.mark.parametrize("mine", [-5, 1, 3])
def test_by_score(run: Run, ranking: str, mine: int, below: int, above: int) -> None:
    code = "return {ends_by_score(KEYS[1], ARGV[1], ARGV[2], 1)}"
    inside = [at for at, score in enumerate(SCORES) if mine - below <= score <= mine + above]
    first, last = run("bands", code, [ranking], [mine, struct.pack("<dd", below, above)])
    assert list(range(first, last + 1)) == inside


def test_by_rank_and_the_second_band(run: Run, ranking: str) -> None:
    code = "return {ends_by_rank(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3])}"
    band = struct.pack("<dd", 1, 2)
    assert run("bands", code, [ranking], [3, 1, band]) == [2, 5]
    assert run("bands", code, [ranking], [3, 0, band]) == [2, 4]  # one who stands elsewhere
    code = "return {ends_by_score(KEYS[1], ARGV[1], ARGV[2], 2)}"
    assert run("bands", code, [ranking], [1, struct.pack("<dddd", 1, 2, 99, 99)]) == [0, 6]


BIG = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [-(2**63), 1 - 2**53, -(2**53), 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1]
)


@pytest.mark.parametrize("paths", [["total"], ["total", "lost"]], ids=["alone", "with ties"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(BIG, min_size=1, max_size=9), below=st.integers(0, 2**64), above=st.integers(0, 2**64))
def test_exactly(run: Run, zrank: Redis, paths: list[str], values: list[int], below: int, above: int) -> None:
    order = Order.parse(Competitor, paths)
    encode = order.encode
    zrank.delete("ranking")
    stored = []
    for at, value in enumerate(values):
        score, tie = encode((value, 1)[: len(paths)])
        stored.append((value, tie + b"%d" % at, float(score)))
        zrank.zadd("ranking", {tie + b"%d" % at: score})
    stored.sort(key=lambda one: (one[0], one[1]))
    mine, me, score = stored[len(stored) // 2]
    halves = [half for end in (below, above) for half in divmod(min(end, 2**64 - 1), 2**32)]
    code = """return {ends_exactly(KEYS[1], tonumber(ARGV[2]), ARGV[1], ARGV[3],
      {width = tonumber(ARGV[4]), memberships = true})}"""
    args = [me, repr(score), struct.pack(">4I", *halves), order.width]
    first, last = run("exact", code, ["ranking"], args)
    inside = [at for at, one in enumerate(stored) if mine - below <= one[0] <= mine + above]
    assert list(range(first, last + 1)) == inside
