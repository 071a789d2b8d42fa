"""Members are put into what is made of several filters, and taken out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]

PUT = """
  local layout = {width = tonumber(ARGV[1]), memberships = true}
  local made = {base = 'part', noted = noted_key('part'), live = 'root', layout = layout, now = 0, work = 100,
    checks = parse_tests('+r1', KEYS, 1), facet = ARGV[2], low = '-inf', high = ARGV[3],
    counted_by = names_reader(ARGV[2])}
  return put(made, {unpack(ARGV, 5)}, nil, nil, ARGV[4] == '1')"""


def put(
    run: Run, *members: str, width: int = 0, facet: str = "", high: str = "+inf", there: bool = False
) -> int:
    """Put in those of some members that stand in the region a; return their number."""
    passes: int = run(
        "tests, slices, made", PUT, ["root:region:a"], [width, facet, high, int(there), *members]
    )
    return passes


def stand(zrank: Redis, member: str, score: float, region: str, tie: bytes = b"") -> None:
    """Let a member of the index stand in a region, and in no other."""
    for name in "ab":
        for stored in zrank.zrange(f"root:region:{name}", 0, -1):
            if stored.endswith(member.encode()):
                zrank.zrem(f"root:region:{name}", stored)
                zrank.zrem("root", stored)
    zrank.hset("root:memberships", member, tie + f"region:{region}".encode())
    zrank.zadd("root", {tie + member.encode(): score})
    zrank.zadd(f"root:region:{region}", {tie + member.encode(): score})


@pytest.fixture(autouse=True)
def filled(zrank: Redis) -> None:
    for member, score, region in (("1", 5, "a"), ("2", 6, "b"), ("3", 7, "a")):
        stand(zrank, member, score, region)


def test_those_who_pass_are_put_in_with_their_scores(run: Run, zrank: Redis) -> None:
    assert put(run, "1", "2", "3", "nobody") == 2
    assert zrank.zrange("part", 0, -1, withscores=True) == [(b"1", 5), (b"3", 7)]
    zrank.delete("part")
    assert put(run, "1", "2", "3", high="6") == 1, "scores beyond the highest don't belong to it"


def test_those_who_pass_no_more_are_taken_out_if_they_may_be_there(run: Run, zrank: Redis) -> None:
    put(run, "1", "2", "3")
    stand(zrank, "1", 5, "b")
    assert put(run, "1") == 0
    assert zrank.zcard("part") == 2
    assert put(run, "1", "nobody", there=True) == 0
    assert zrank.zrange("part", 0, -1) == [b"3"]


@pytest.mark.parametrize("width", [0, 8])
def test_a_member_stands_once_where_its_tie_bytes_have_changed(run: Run, zrank: Redis, width: int) -> None:
    first, second = (b"\0" * (9 - bool(width)), b"\0" + b"\1" * (8 - bool(width)))
    for tie in (first, second):
        stand(zrank, "9", 1, "a", tie)
        assert put(run, "9", width=width, there=True) == 1
        assert zrank.zrange("part", 0, -1) == [tie + b"9"]
    if not width:
        stand(zrank, "9", 1, "a")
        assert put(run, "9", there=True) == 1
        assert (zrank.zrange("part", 0, -1), zrank.exists("part:noted")) == ([b"9"], 0)


def test_members_are_counted_once_by_what_they_are_now(run: Run, zrank: Redis) -> None:
    for _ in range(2):
        assert put(run, "1", "2", "3", facet="region:") == 2
        assert zrank.hgetall("part") == {b"region:a": b"2"}
    stand(zrank, "3", 7, "b")
    put(run, "3", facet="region:", there=True)
    assert zrank.hgetall("part") == {b"region:a": b"1"}
    stand(zrank, "1", 5, "b")
    put(run, "1", facet="region:", there=True)
    assert zrank.exists("part", "part:noted") == 0


@pytest.mark.parametrize(
    ("size", "is_near"),
    [
        (0, False),
        (2**12, False),
        (2**15 - 1001, False),
        (2**15 - 1000, True),
        (2**15 + 1999, True),
        (2**15 + 2000, False),
        (7 * 2**13, True),
        (7 * 2**17 - 1, True),
        (2**20, True),
        (10**6, False),
    ],
)
def test_members_cost_more_while_hash_tables_double(run: Run, size: int, is_near: bool) -> None:
    code = "return doubles(tonumber(ARGV[1])) and 'doubles' or 'stays'"
    assert run("tests, slices, made", code, [], [size]) == (b"doubles" if is_near else b"stays")


@pytest.mark.parametrize(("facet", "costs"), [("", [6, 18]), ("region:", [3, 9])])
def test_pieces_are_small_meanwhile(run: Run, zrank: Redis, facet: str, costs: list[int]) -> None:
    code = """
      local made = {base = 'part', noted = 'noted', facet = ARGV[1], layout = {width = 8}}
      return cost_to_put(made)"""
    found = [run("tests, slices, made", code, [], [facet])]
    run("bulk", "local many = {} for i = 1, 65536 do many[i] = i end write_all('ZADD', 'part', many)")
    run("bulk", "local many = {} for i = 1, 65536 do many[i] = i end write_all('HSET', 'noted', many)")
    assert [*found, run("tests, slices, made", code, [], [facet])] == costs
