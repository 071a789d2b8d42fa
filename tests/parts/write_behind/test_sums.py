from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

PACKAGE = "django_zrank.write_behind"

ADD = """
local members, changes = {'a', 'b'}, {ARGV[1], 1}
add_pending(KEYS[1], members, changes)
"""


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (0, 5),
        (5, -7),
        (2**53, 1),
        (2**53 + 3, -5),
        (-5, 2**53 + 3),
        (2**53 - 1, 2**53 - 2),
        (-(2**53) + 1, -(2**53) + 2),
        (-(2**53) - 3, 5),
    ],
)
def test_a_sum_is_exact_whatever_doubles_can_hold(
    zrank: Redis, run: Callable[..., Any], held: int, change: int
) -> None:
    zrank.delete("pending")
    zrank.hset("pending", "a", held)
    run("sums", ADD, ["pending"], [change], PACKAGE)
    assert zrank.hgetall("pending") == {b"a": str(held + change).encode(), b"b": b"1"}
    run("sums", "add_pending(KEYS[1], {'a'}, {ARGV[1]})", ["pending"], [-change], PACKAGE)
    assert zrank.hget("pending", "a") == str(held).encode()
