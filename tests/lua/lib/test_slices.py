"""Many members are tested at once, as each would be by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]

KEYS = ["root:a", "root:b", "root:c", "root:d", "root:e", "group"]


@pytest.fixture
def members(zrank: Redis) -> list[str]:
    """Members of rankings and of a group, and their memberships."""
    rng, members = random.Random(1), [str(pk) for pk in range(40)]
    for member in members:
        names = rng.sample("abcde", rng.randrange(4))
        zrank.hset("root:memberships", member, "\0".join(names))
        zrank.zadd("root", {member: int(member)})
        for name in names:
            zrank.zadd(f"root:{name}", {member: int(member)})
    zrank.zadd("group", {member: rng.choice([50, 150]) for member in rng.sample(members, 20)})
    return [*members, "nobody"]


@pytest.mark.parametrize("tests", ["+r1-r2+r2-g1", "-r5+g1", "+r5-g1", "-r1-r1-r1-r1-r1+g1"])
@pytest.mark.parametrize("is_read", [False, True])
def test_those_who_pass(run: Run, members: list[str], tests: str, is_read: bool) -> None:
    code = """
      local layout = {width = 0, memberships = true}
      local tests, stored, one_by_one = parse_tests(ARGV[1], KEYS, 1), {unpack(ARGV, 3)}, {}
      local passes = tester(tests, layout, 'root', 100)
      for i, member in ipairs(stored) do
        if passes(member) then one_by_one[#one_by_one + 1] = i end
      end
      local read = ARGV[2] == 'true' and redis.call('HMGET', 'root:memberships', unpack(stored)) or nil
      return {one_by_one, passing(tests, stored, layout, 'root', 100, nil, read)}"""
    one_by_one, at_once = run("tests, slices", code, KEYS, [tests, str(is_read).lower(), *members])
    assert one_by_one == at_once != []


def test_the_test_that_was_read_is_skipped(run: Run, members: list[str]) -> None:
    code = """
      local layout, tests = {width = 0, memberships = true}, parse_tests(ARGV[1], KEYS, 1)
      return {look_ups_of(tests), look_ups_of(tests, tests[1]),
        #passing(tests, {unpack(ARGV, 2)}, layout, 'root', 100, tests[1])}"""
    assert run("tests, slices", code, KEYS, ["-r5", *members]) == [2, 0, 41]
    assert run("tests, slices", code, KEYS, ["+r2", *members])[:2] == [2, 0]


def test_rankings_come_before_groups_and_the_smallest_is_read(
    run: Run, members: list[str], zrank: Redis
) -> None:
    code = """
      local checks, groups = checks_and_groups(parse_tests(ARGV[1], KEYS, 1))
      local kinds = {}
      for i, check in ipairs(checks) do kinds[i] = check.is_group and 'group' or check.keys[1] end
      return {kinds, groups, smallest_check(checks, 'root', ARGV[2], ARGV[3])}"""
    zrank.zadd("few", {"1": 1, "2": 2})
    keys = ["group", "root:a", "few"]
    found = run("tests, slices", code, keys, ["-g1-r1+r1", "-inf", "+inf"])
    assert found == [[b"few", b"root:a", b"group"], [b"group"], 1, 2]
    assert run("tests, slices", code, keys, ["+g1-r1+r1", "2", "2"])[2:] == [1, 1]
    assert run("tests, slices", code, keys, ["-g1-r2", "0", "9"])[2:] == [0, 10], "of the whole index"
