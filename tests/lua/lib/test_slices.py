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


@pytest.mark.parametrize("test", ["+r2", "-r1", "-r5", "+g1", "-g1"])
def test_those_who_pass(run: Run, members: list[str], test: str) -> None:
    code = """
      local layout, tests = {width = 0, memberships = true}, parse_tests(ARGV[1], KEYS, 1)
      local members, one_by_one = {unpack(ARGV, 2)}, {}
      local passes = tester(tests, layout, 'root', 100)
      for i, member in ipairs(members) do
        if passes(member) then one_by_one[#one_by_one + 1] = i end
      end
      return {one_by_one, passing(tests[1], members, members, 100)}"""
    keys = KEYS[-1:] if "g" in test else KEYS
    one_by_one, at_once = run("tests, slices", code, keys, [test, *members])
    assert one_by_one == at_once != []


def test_the_names_of_rankings_are_tested(run: Run) -> None:
    code = """
      local tests = parse_tests(ARGV[1], KEYS, 1)
      local passes, others = names_tester(tests, 'root'), names_tester(tests, 'root', tests[1])
      local reply = {}
      for i = 2, #ARGV do
        reply[#reply + 1] = {passes[ARGV[i]] and 1 or 0, others[ARGV[i]] and 1 or 0}
      end
      return reply"""
    names = ["a\0x", "a\0c", "b", "c", "", "a\0x"]
    found = run("tests, slices", code, ["root:a", "root:b", "root:c", "group"], ["+r2-r1+g1", *names])
    assert found == [[1, 1], [0, 0], [1, 1], [0, 0], [0, 1], [1, 1]]


def test_the_test_that_was_read_is_skipped(run: Run) -> None:
    code = """
      local tests = parse_tests(ARGV[1], KEYS, 1)
      return {look_ups_of(tests), look_ups_of(tests, tests[1])}"""
    assert run("tests, slices", code, KEYS, ["-r5"]) == [2, 0]
    assert run("tests, slices", code, KEYS, ["+r2"]) == [2, 0]


def test_the_smallest_is_read(run: Run, members: list[str], zrank: Redis) -> None:
    code = """
      local checks = parse_tests(ARGV[1], KEYS, 1)
      return {groups_of(checks), smallest_check(checks, 'root', ARGV[2], ARGV[3])}"""
    zrank.zadd("few", {"1": 1, "2": 2})
    keys = ["group", "root:a", "few"]
    assert run("tests, slices", code, keys, ["-g1-r1+r1", "-inf", "+inf"]) == [[b"group"], 3, 2]
    assert run("tests, slices", code, keys, ["+g1-r1+r1", "2", "2"])[1:] == [3, 1]
    assert run("tests, slices", code, keys, ["-g1-r2", "0", "9"])[1:] == [0, 10], "of the whole index"
