"""Members shown to another one are remembered, up to a time and a number."""

from __future__ import annotations

from redis import Redis

from django_zrank.remember.memory import Memory, remembered_key
from django_zrank.store import Store

HOUR = 3600 * 10**6


def show(store: Store, *members: str, span: int = HOUR) -> str:
    """Remember them, and return the key."""
    store.run(lambda keys: Memory(span).drawn(keys, "7", members))
    return remembered_key(store.live, "7")


def test_those_whose_time_is_over_are_forgotten(store: Store, zrank: Redis) -> None:
    seconds, _ = zrank.time()  # type: ignore[misc]
    later = (seconds + 100) * 10**6
    zrank.zadd(remembered_key(store.live, "7"), {"1": seconds * 10**6 - 1, "3": later + 2, "4": later + 1})
    assert zrank.zrange(show(store, "9"), 0, -1) == [b"4", b"3", b"9"]


def test_they_are_remembered_for_as_long_as_the_longest(store: Store, zrank: Redis) -> None:
    longest = zrank.pexpiretime(show(store, "9", span=2 * HOUR))
    key = show(store, "1", "2")
    assert zrank.zrange(key, 0, -1) == [b"1", b"2", b"9"]
    assert zrank.pexpiretime(key) == longest


def test_a_thousand_are_remembered(store: Store, zrank: Redis) -> None:
    show(store, *map(str, range(1000)))
    key = show(store, "new", span=2 * HOUR)
    assert zrank.zcard(key) == 1000
    assert zrank.zrange(key, -1, -1) == [b"new"]
