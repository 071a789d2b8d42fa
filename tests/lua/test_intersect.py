from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank.exceptions import FilterTooLarge
from django_zrank.filters import Clause, Scope
from django_zrank.requests.counts import Size
from django_zrank.requests.groups import add_to_group
from django_zrank.requests.view import View
from django_zrank.store import Store

from .conftest import ask

BOTH = Scope((Clause(False, "g", ("a",)), Clause(False, "g", ("b",))))


def add(store: Store, group: str, *members: str) -> None:
    store.run(lambda keys: add_to_group(keys, group, members, float("inf"), 0))


@pytest.fixture
def narrowed(zrank: Redis, store: Store) -> Store:
    """Who is in both groups."""
    add(store, "a", "1", "2")
    add(store, "b", "2", "3")
    return store


def keys(zrank: Redis) -> dict[bytes, Any]:
    return {key: zrank.ttl(key) for key in zrank.scan_iter("*intersection*")}


def test_it_is_kept_for_seconds_and_leaves_nothing_else(zrank: Redis, narrowed: Store) -> None:
    assert ask(narrowed, Size(), scope=BOTH) == 1
    found = keys(zrank)
    assert len(found) == 1
    assert 0 < next(iter(found.values())) <= 5


def test_what_is_there_stays(zrank: Redis, narrowed: Store) -> None:
    assert ask(narrowed, Size(), scope=BOTH) == 1
    add(narrowed, "a", "3")
    assert ask(narrowed, Size(), scope=BOTH) == 1
    zrank.delete(*keys(zrank))
    assert ask(narrowed, Size(), scope=BOTH) == 2


def test_too_many(narrowed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "LIMIT", 1)
    with pytest.raises(FilterTooLarge, match="2 members, more than 1"):
        ask(narrowed, Size(), scope=BOTH)
