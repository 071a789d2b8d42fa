"""An intersection is filled as a part, takes its own key when it is complete, and begins again where a key is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

Run = Callable[..., Any]

MADE = """
  local made = {key = 'made', making = 'making', registry = 'registry', live = 'live', layout = {width = 0},
    facet = '', low = '-inf', high = '+inf', checks = {}, groups = {'group'}, now = clock(), lease = clock(),
    limit = tonumber(ARGV[1]), most = 100, bytes = 1e9, seconds = 5, work = 1000, spent = 0,
    is_numbered = ARGV[2] == 'numbers'}
  resume(made, 'meta', 'recent', 'pending')
  """


@pytest.fixture(autouse=True)
def filled(zrank: Redis) -> None:
    zrank.zadd("live", {"1": 1, "2": 2})
    zrank.zadd("group", {"1": "inf"})
    zrank.hset("meta", mapping={"applied": 5, "started": 3, "floor": 0})


def do(run: Run, code: str, *, limit: int = 100, numbers: bool = False) -> Any:
    return run("clock, progress", MADE + code, [], [limit, "numbers" if numbers else ""])


def begin_and_finish(run: Run, **how: Any) -> None:
    do(run, "begin(made, 'meta'); made.state.pieces = 1; finish(made)", **how)


def test_a_part_is_not_seen_before_it_is_complete(run: Run, zrank: Redis) -> None:
    fill = "begin(made, 'meta'); redis.call('ZADD', made.base, 1, '1'); save(made)"
    do(run, fill)
    assert (zrank.exists("made"), zrank.exists("made:unfinished")) == (0, 1)
    assert do(run, "made.state.pieces = 1; finish(made); return made.state.size") == 1
    assert (zrank.exists("made"), zrank.exists("made:unfinished")) == (1, 0)
    assert all(0 < zrank.ttl(key) <= 60 for key in ("made", "making", "registry", "group:changed"))


CHANGED: dict[str, dict[Any, Any]] = {
    "rebuilt": {"started": 4},
    "forgotten": {"floor": 6},
    "evicted": {"guarded": 1, "applied": 6},
}


@pytest.mark.parametrize("lost", ["made", "group", "group:changed", "pending:changed", *CHANGED])
def test_it_begins_anew_where_something_is_gone(run: Run, zrank: Redis, lost: str) -> None:
    do(run, "begin(made, 'meta'); redis.call('ZADD', made.base, 1, '1'); made.state.pieces = 1; finish(made)")
    ask = "return goes_on(made) and 'goes on' or 'begins'"
    assert do(run, ask) == b"goes on"
    if lost in CHANGED:
        zrank.hset("meta", mapping=CHANGED[lost])
    else:
        zrank.delete(lost)
    assert do(run, ask) == b"begins"


def test_one_that_is_not_followed_is_made_once(run: Run, zrank: Redis) -> None:
    begin_and_finish(run, numbers=True)
    assert zrank.hget("making", "phase") == b"made"
    assert do(run, "return goes_on(made) and 1 or 0", numbers=True) == 0


def test_distinct_values_are_numbered(run: Run, zrank: Redis) -> None:
    code = """
      begin(made, 'meta')
      redis.call('ZADD', made.unfinished, 1, 'a', 1, 'b', 2.5, 'c')
      made.work, made.state.at = 12, 0
      local pieces = 0
      repeat pieces = pieces + 1 until number_values(made)
      return pieces"""
    assert do(run, code, numbers=True) == 2
    assert zrank.zrange("made:unfinished:values", 0, -1, withscores=True) == [(b"1", 1), (b"2.5", 2.5)]


def test_too_many(run: Run, zrank: Redis) -> None:
    assert do(run, "return begin(made, 'meta').err", limit=1) == b"TOOLARGE 2 1"
    assert not zrank.exists("making")


def test_the_next_one_unlinks_those_that_nobody_reads(run: Run, zrank: Redis) -> None:
    zrank.zadd("registry", {"old": 1})
    for key in ("old", "old:values", "old:noted"):
        zrank.set(key, "")
    begin_and_finish(run)
    assert zrank.exists("old", "old:values", "old:noted") == 0
    assert zrank.zrange("registry", 0, -1) == [b"made"]
