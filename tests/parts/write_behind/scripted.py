"""Write-behind scores, in tests of scripts by themselves."""

from __future__ import annotations

from typing import Any

from django_zrank import RankIndex
from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.write_behind.changes import ChangeScores
from django_zrank.write_behind.keys import carried_key, pending_key
from django_zrank.write_behind.store import Flight, PendingStore
from tests.builds import TERM
from tests.testapp.models import Player

__all__ = ["RULE", "carried", "change", "pending", "ruled", "take"]

RULE = "sum:level:0"


def change(store: PendingStore, changes: dict[str, int]) -> None:
    found = store.run(ChangeScores(PLAIN, store.rule, (-(10**6), 10**6), list(changes.items())).steps)
    assert found.outcome == "done"


def take(store: PendingStore, flushed: int = 0, *, term: int = TERM, limit: int = 100) -> Flight | None:
    return store.take_pending(term, flushed, limit)


def _changes(store: PendingStore, key: str) -> dict[str, int]:
    found: Any = store.client.hgetall(key)
    return {member.decode(): int(change) for member, change in found.items()}


def pending(store: PendingStore) -> dict[str, int]:
    return _changes(store, pending_key(store.keys))


def carried(store: PendingStore, number: int) -> dict[str, int]:
    """What a flush carries, as far as it is kept."""
    return _changes(store, carried_key(store.keys, number))


def ruled(name: str, layout: Layout, rule: str) -> PendingStore:
    """An index whose scores change by a rule."""
    attributes = {"name": name, "model": Player, "order": ("level",), "write_behind": "increment"}
    index: RankIndex = type("Behind", (RankIndex,), attributes).instance()
    vars(index)["noted_rule"] = rule
    store = PendingStore(name, layout, index)
    store.rule = rule
    return store
