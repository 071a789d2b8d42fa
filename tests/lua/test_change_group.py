"""Groups change in parts, and forget members whose time is over some at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from django_zrank.requests import groups
from django_zrank.store import Store

NOW = 10**15


def change(store: Store, members: Sequence[Any], until: float | None = None) -> int:
    texts = [str(member) for member in members]
    if until is None:
        return store.run(lambda keys: groups.remove_from_group(keys, "live", texts, NOW))
    return store.run(lambda keys: groups.add_to_group(keys, "live", texts, until, NOW))


def test_members_whose_time_is_over_are_new_and_are_not_removed(zrank: Redis, store: Store) -> None:
    zrank.zadd(store.keys.group("live"), {"1": NOW, "2": NOW + 1, "3": "inf"})
    assert change(store, [1, 2, 3, 4, 4], NOW + 5) == 2
    zrank.zadd(store.keys.group("live"), {"1": NOW})
    assert change(store, [1, 2, 5]) == 1
    assert zrank.zrange(store.keys.group("live"), 0, -1) == [b"3", b"4"]


def test_they_are_forgotten_some_at_a_time(
    zrank: Redis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_PART", 3)
    zrank.zadd(store.keys.group("live"), {str(pk): NOW - pk for pk in range(10)})
    assert change(store, [20], NOW + 1) == 1
    assert zrank.zcard(store.keys.group("live")) == 8
    assert change(store, [20, 21, 22, 23], NOW + 1) == 3
    assert {int(member) for member in zrank.zrange(store.keys.group("live"), 0, -1)} == {0, 20, 21, 22, 23}
