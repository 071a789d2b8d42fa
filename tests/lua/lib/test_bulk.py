"""Commands with more values than Lua unpacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]


@pytest.mark.parametrize("count", [0, 1, 7000, 7001, 20_000])
def test_each_value_is_written_and_read_in_its_place(run: Run, zrank: Redis, count: int) -> None:
    code = """
      local pairs_of, names = {}, {}
      for i = 1, tonumber(ARGV[1]) do
        pairs_of[2 * i - 1], pairs_of[2 * i], names[i] = i, 'm' .. i, 'm' .. i
      end
      local added = write_all('ZADD', KEYS[1], pairs_of)
      local found, wrong = read_all('ZMSCORE', KEYS[1], names), 0
      for i in ipairs(names) do
        if tonumber(found[i]) ~= i then wrong = wrong + 1 end
      end
      return {added, #found, wrong, write_all('ZREM', KEYS[1], names)}"""
    assert run("bulk", code, ["ranking"], [count]) == [count, count, 0, count]


def test_a_list_begins_where_there_is_none(run: Run) -> None:
    code = """
      local lists = {}
      for _, name in ipairs(ARGV) do table.insert(list_of(lists, name), #list_of(lists, name)) end
      return {lists.a, lists.b}"""
    assert run("bulk", code, [], ["a", "b", "a"]) == [[0, 1], [0]]
