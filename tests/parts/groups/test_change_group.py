"""Groups change in parts, and forget members whose time is over some at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from django_zrank import groups
from django_zrank.groups.keys import group_key
from django_zrank.store import Store

MINUTE = 60 * 10**6


@pytest.fixture
def now(zrank: Redis) -> int:
    """The server's time, in microseconds: a clock of Python's is never asked."""
    seconds, microseconds = zrank.time()
    return seconds * 10**6 + microseconds


def change(store: Store, members: Sequence[Any], lifetime: float | None = None) -> int:
    texts = [str(member) for member in members]
    until = "" if lifetime is None else lifetime
    return store.run(lambda keys: groups.change_group(keys, texts, "live", until))


def count(store: Store, *members: str) -> int:
    return store.run(lambda keys: groups.count_group(keys, "live", members))


def test_members_whose_time_is_over_are_new_and_are_not_removed(zrank: Redis, store: Store, now: int) -> None:
    zrank.zadd(group_key(store.keys, "live"), {"1": now, "2": now + MINUTE, "3": "inf"})
    assert [count(store), count(store, "1"), count(store, "2", "3", "4")] == [2, 0, 2]
    assert change(store, [1, 2, 3, 4, 4], 2 * MINUTE) == 2
    assert zrank.zscore(group_key(store.keys, "live"), "4") - now in range(2 * MINUTE, 3 * MINUTE)
    zrank.zadd(group_key(store.keys, "live"), {"1": now})
    assert change(store, [1, 2, 5]) == 1
    assert zrank.zrange(group_key(store.keys, "live"), 0, -1) == [b"3", b"4"]


def test_they_are_forgotten_some_at_a_time(
    zrank: Redis, store: Store, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_PIECE", 3)
    zrank.zadd(group_key(store.keys, "live"), {str(pk): now - pk for pk in range(10)})
    assert change(store, [20], MINUTE) == 1
    assert zrank.zcard(group_key(store.keys, "live")) == 8
    assert change(store, [20, 21, 22, 23], MINUTE) == 3
    assert {int(member) for member in zrank.zrange(group_key(store.keys, "live"), 0, -1)} == {
        0,
        20,
        21,
        22,
        23,
    }
