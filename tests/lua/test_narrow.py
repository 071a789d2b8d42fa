from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank import store as module
from django_zrank.exceptions import FilterTooLarge
from django_zrank.filters import Clause, Scope
from django_zrank.store import Store


@pytest.fixture
def narrowed(zrank: Redis, store: Store) -> Store:
    """Who is in both groups."""
    store.add_to_group("a", ["1", "2"], float("inf"), 0)
    store.add_to_group("b", ["2", "3"], float("inf"), 0)
    clauses = (Clause(False, "g", ("a",)), Clause(False, "g", ("b",)))
    return Store(store.name, store.layout, Scope(clauses))


def keys(zrank: Redis) -> dict[bytes, Any]:
    return {key: zrank.ttl(key) for key in zrank.scan_iter("*narrowed*")}


def test_it_is_kept_for_seconds_and_leaves_nothing_else(zrank: Redis, narrowed: Store) -> None:
    assert narrowed.size() == 1
    found = keys(zrank)
    assert len(found) == 1
    assert 0 < next(iter(found.values())) <= 5


def test_what_is_there_stays(zrank: Redis, narrowed: Store) -> None:
    assert narrowed.size() == 1
    narrowed.add_to_group("a", ["3"], float("inf"), 0)
    assert narrowed.size() == 1
    zrank.delete(*keys(zrank))
    assert narrowed.size() == 2


def test_too_many(narrowed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NARROW_LIMIT", 1)
    with pytest.raises(FilterTooLarge, match="2 members, more than 1"):
        narrowed.size()
