"""Changes are read from their sources up to a cursor, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]

MADE = """
  local made = {base = 'part', noted = 'part:noted', live = 'live', layout = {width = 0}, facet = '', low = '-inf',
    high = '+inf', now = clock(), work = tonumber(ARGV[1]), spent = 0, kept = 60, applied = 5, forgotten = 0,
    state = {}, checks = {}, groups = {}, sources = {'recent', 'log'}}
  for i = 2, #ARGV, 2 do made.state[ARGV[i]] = ARGV[i + 1] end
  """
TELL = """
  local reply = {made.base}
  for field, value in pairs(made.state) do reply[#reply + 1], reply[#reply + 2] = field, tostring(value) end
  return reply"""


def do(run: Run, code: str, work: int = 1000, **state: Any) -> dict[str, str]:
    """The state after some Lua on what is made."""
    args = [text for pair in state.items() for text in pair]
    _, *reply = [text.decode() for text in run("clock, changes", MADE + code + TELL, [], [work, *args])]
    return dict(zip(reply[::2], reply[1::2], strict=True))


@pytest.fixture
def state(run: Run, zrank: Redis) -> dict[str, str]:
    """Cursors at the ends of both sources: what changes from now on is read."""
    zrank.zadd("recent", {"old": 5})
    return do(run, "for i = 1, 2 do skip_to_end(made, i) end")


def test_a_log_begins_where_there_is_none(zrank: Redis, state: dict[str, str]) -> None:
    assert (state["version1"], state["member1"]) == ("6", "")
    assert zrank.zrange("log", 0, -1) == [b"\0"]


def test_what_has_changed_is_put_right_and_read_once(run: Run, zrank: Redis, state: dict[str, str]) -> None:
    zrank.zadd("live", {"1": 10, "old": 1})
    zrank.zadd("part", {"2": 20})
    zrank.zadd("recent", {"1": 6, "2": 7})
    assert do(run, "made.state.found = backlog(made)", **state)["found"] == "2"
    after = do(run, "made.applied = 7; made.state.is_all = follow(made)", **state)
    assert (after["is_all"], after["version1"]) == ("true", "8")
    assert zrank.zrange("part", 0, -1, withscores=True) == [(b"1", 10)]
    assert do(run, "made.state.found = backlog(made)", **after)["found"] == "0"


def test_many_changes_are_read_in_pieces(run: Run, zrank: Redis, state: dict[str, str]) -> None:
    zrank.zadd("live", {str(pk): pk for pk in range(30)})
    zrank.zadd("recent", {str(pk): 6 + pk for pk in range(30)})
    pieces, is_all = 0, "false"
    while is_all == "false":
        state = do(run, "made.applied = 35; made.state.is_all = follow(made)", 60, **state)
        pieces, is_all = pieces + 1, state["is_all"]
    assert zrank.zcard("part") == 30
    assert pieces == int(state["pieces"]) > 3


def test_changes_that_were_forgotten_are_noticed(run: Run, zrank: Redis, state: dict[str, str]) -> None:
    ask = "made.state.are = are_forgotten(made)"
    assert do(run, ask, **state)["are"] == "false"
    assert do(run, f"made.forgotten = 6; {ask}", **state)["are"] == "true"
    zrank.zincrby("log", 1, "\0")
    assert do(run, ask, **state)["are"] == "true", "a log was shortened"
    zrank.delete("log")
    assert do(run, ask, **state)["are"] == "true"


def test_the_oldest_of_a_log_are_forgotten_but_where_it_ends(run: Run, zrank: Redis) -> None:
    zrank.zadd("log", {"\0": 1, "a": 2, "b": 3, "c": 9})
    assert run("changes", "return shorten('log', 5, 10)") == 3
    assert zrank.zrange("log", 0, -1, withscores=True) == [(b"\0", 3), (b"c", 9)]
    assert run("changes", "return shorten('log', 5, 10)") == 1
    assert zrank.zcard("log") == 2
