"""Members are tested by the sets in which they stand, or don't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_zrank.combined.filters import Clause, CombinedFilter

Run = Callable[..., Any]

LAYOUT = "{width = tonumber(ARGV[2]), memberships = true}"


def passing(
    run: Run, filters: CombinedFilter, sets: list[str], members: list[str], *, width: int = 0
) -> list[str]:
    code = f"""
        local tests, layout = parse_tests(ARGV[1], KEYS, 1, "root"), {LAYOUT}
        local passes, reply = tester(tests, layout, "root", tonumber(ARGV[3])), {{}}
        for i = 4, #ARGV do
          if passes(ARGV[i]) then
            reply[#reply + 1] = ARGV[i]
          end
        end
        return reply"""
    keys = [name if name == "group" else f"root:{name}" for name in sets]
    args = [str(filters), width, 100, *members]
    return [member.decode() for member in run("tests", code, keys, args, "django_zrank.combined")]


@pytest.fixture(autouse=True)
def filled(zrank: Redis) -> None:
    zrank.zadd("root:a", {"1": 5, "2": 6})
    zrank.zadd("root:b", {"2": 6, "3": 7})
    zrank.hset("root:memberships", mapping={"1": "a", "2": "a\0b", "3": "b"})
    zrank.zadd("group", {"1": 99, "2": 100, "3": 101, "4": "inf"})


@pytest.mark.parametrize(
    ("clauses", "sets", "expected"),
    [
        ([Clause(False, "r", ("a",))], ["a"], "12"),
        ([Clause(True, "r", ("a",))], ["a"], "34"),
        ([Clause(False, "r", ("a", "b"))], ["a", "b"], "123"),
        ([Clause(True, "r", ("a", "b"))], ["a", "b"], "4"),
        ([Clause(False, "r", ("a",)), Clause(True, "r", ("b",))], ["a", "b"], "1"),
        ([Clause(False, "g", ("group",))], ["group"], "34"),  # up to a time, and not at it
        ([Clause(True, "g", ("group",)), Clause(False, "r", ("b",))], ["group", "b"], "2"),
    ],
)
def test_who_passes(run: Run, clauses: list[Clause], sets: list[str], expected: str) -> None:
    assert "".join(passing(run, CombinedFilter(tuple(clauses)), sets, list("1234"))) == expected


def test_groups_hold_primary_keys(run: Run) -> None:
    filters = CombinedFilter((Clause(False, "g", ("group",)),))
    assert passing(run, filters, ["group"], ["xxxxxxxx3", "xxxxxxxx1"], width=8) == ["xxxxxxxx3"]


def test_the_smallest_ranking_that_holds_all_who_pass(run: Run, zrank: Redis) -> None:
    zrank.zadd("all", dict.fromkeys("123456", 1))
    code = "return smallest_ranking(parse_tests(ARGV[1], KEYS, 2, 'root'), KEYS[1])"
    for tests, sets, expected in (
        ("+r1", ["root:a"], b"root:a"),
        ("-r1", ["root:a"], b"all"),
        ("+r2", ["root:a", "root:b"], b"all"),  # one of several holds not all
        ("+g1", ["group"], b"all"),  # primary keys are no stored members
        ("-r1+r1", ["root:a", "root:b"], b"root:b"),
    ):
        assert run("tests", code, ["all", *sets], [tests], "django_zrank.combined") == expected
