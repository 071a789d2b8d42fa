"""Populations put into an index directly, past the database: for tests of what Redis answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django_zrank import RankIndex
from django_zrank.store import LOAD_LIMIT, Change, Store


def fill(index: type[RankIndex], scores: Mapping[Any, Any]) -> Store:
    """Make the index hold exactly ``scores``: primary key -> value of the first criterion."""
    store, building = Store(index.instance().name, index.instance().layout), uuid4().hex
    encode, to_text = index.instance().ordering.encoder(), index.instance().to_text
    rows = [Change(to_text(pk), encode((score,))[0]) for pk, score in scores.items()]
    store.start_rebuild(building)
    for start in range(0, len(rows), LOAD_LIMIT):
        assert store.load_rows(building, rows[start : start + LOAD_LIMIT])
    assert store.swap_rebuilt(building)
    return store
