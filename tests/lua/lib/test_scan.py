"""Sets are read in pieces by score and member: nobody who stays is missed, or met twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]


def read_on(run: Run, score: str, member: str, count: int = 3) -> list[Any]:
    code = "return {read_on(KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]))}"
    found: list[Any] = run("scan", code, ["set"], [score, member, count])
    return found


@pytest.fixture(autouse=True)
def filled(zrank: Redis) -> None:
    zrank.zadd("set", {str(pk): pk // 4 for pk in range(10, 30)})


def test_positions_that_move_between_two_pieces_do_not_matter(run: Run, zrank: Redis) -> None:
    met, score, member = [], "-inf", ""
    for gone in ("10", "14", "27", "12", "x", "y", "z"):
        members, score = read_on(run, score, member)
        met += members
        member = members[-1]
        zrank.zrem("set", gone, member if gone.isdigit() else "")  # at times also the one that was read last
    stayed = {b"%d" % pk for pk in range(10, 30)} - {b"10", b"14", b"27", b"12"}
    assert stayed <= set(met)
    assert len(met) == len(set(met))


def test_a_member_that_has_moved_on_is_gone_on_from_where_it_was(run: Run, zrank: Redis) -> None:
    zrank.zadd("set", {"13": 99})
    assert read_on(run, "3", "13")[0] == [b"14", b"15", b"16"]


@pytest.mark.parametrize(("work", "pieces"), [(1000, 1), (10, 4)])
def test_a_piece_reads_as_many_sets_as_its_work_allows(
    run: Run, zrank: Redis, work: int, pieces: int
) -> None:
    zrank.zadd("other", {"1": 1, "2": 2})
    zrank.zunionstore("live", ["set", "other"])
    code = """
      local made = {base = 'part', noted = 'part:noted', live = 'live', layout = {width = 0}, now = 0,
        work = tonumber(ARGV[1]), checks = parse_tests('+r2', KEYS, 1), facet = '', low = '-inf', high = '+inf',
        state = {driver = 1, set = 1, score = '', member = '', phase = 'scan'}}
      local pieces = 0
      repeat
        made.spent = 0
        scan(made)
        pieces = pieces + 1
      until made.state.phase ~= 'scan'
      return {pieces, made.state.phase}"""
    found, phase = run("tests, scan", code, ["set", "other"], [work])
    assert (phase, zrank.zcard("part")) == (b"written", 22)
    assert found >= pieces
    assert (found == 1) == (pieces == 1)
