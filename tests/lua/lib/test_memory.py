"""Members shown to another one are remembered, up to a time and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import Redis

Run = Callable[..., Any]

NOW = 4 * 10**15

HEAD = "'drawn', 9, 0, 1, 8"

LAYOUT = "{width = 0, memberships = false}"


def test_those_whose_time_is_over_are_forgotten(run: Run, zrank: Redis) -> None:
    zrank.zadd("seen", {"1": NOW - 1, "2": NOW, "3": NOW + 2, "4": NOW + 1})
    code = "forget_old(KEYS[1], tonumber(ARGV[1])) return remembered(KEYS[1])"
    assert run("memory", code, ["seen"], [NOW]) == [b"4", b"3"]
    assert zrank.zrange("seen", 0, -1) == [b"4", b"3"]


def test_those_drawn_are_remembered_for_as_long_as_the_longest(run: Run, zrank: Redis) -> None:
    seconds, _ = zrank.time()  # type: ignore[misc]
    till = (seconds + 100) * 10**6
    zrank.zadd("seen", {"9": till + 50 * 10**6})
    code = "memorize({'1', '2'}, KEYS[1], tonumber(ARGV[1]))"
    run("memory", code, ["seen"], [till])
    assert zrank.zrange("seen", 0, -1, withscores=True) == [(b"1", till), (b"2", till), (b"9", till + 50e6)]
    assert zrank.pexpiretime("seen") == till // 1000 + 50_000


def test_a_thousand_are_remembered(run: Run, zrank: Redis) -> None:
    zrank.zadd("seen", {f"old{at}": NOW + at for at in range(1_000)})
    code = "memorize({'1'}, KEYS[1], tonumber(ARGV[1]))"
    run("memory", code, ["seen"], [NOW + 10**9])
    assert zrank.zcard("seen") == 1_000
    assert zrank.zscore("seen", "old0") is None


def test_those_shown_longest_ago_come_again(run: Run, zrank: Redis) -> None:
    zrank.zadd("seen", {"1": NOW + 3, "2": NOW + 1, "3": NOW + 2, "4": NOW, "gone": NOW - 1})
    zrank.zadd("live", {str(pk): pk for pk in range(1, 6)})
    code = f"""
      local draw = {{ranking = KEYS[2], wanted = 3, chosen = 1, reply = {{{HEAD}, 4, '5', '5'}}}}
      offer_again(draw, KEYS[1], KEYS[2], {LAYOUT}, 0, 2, function(who) return who ~= '3' end)
      return {{draw.chosen, {{unpack(draw.reply, 6)}}}}"""
    # 4 stands outside the positions 0 … 2, 3 is not offered, and 'gone' is not ranked.
    assert run("memory", code, ["seen", "live"]) == [
        3, [4, b"5", b"5", 1, b"2", b"2", 0, b"1", b"1"],
    ]  # fmt: skip
