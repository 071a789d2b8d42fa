from __future__ import annotations

import pytest

from django_zrank import RankIndex
from django_zrank.store import Store
from django_zrank.write_behind.store import PendingStore
from tests.lua.conftest import live, store  # noqa: F401
from tests.lua.lib.conftest import run  # noqa: F401
from tests.testapp.models import Player

from .scripted import RULE


@pytest.fixture
def scores(store: Store) -> PendingStore:  # noqa: F811
    """The index of ``store``. Its scores begin in Redis."""
    attributes = {"name": store.name, "model": Player, "order": ("level",), "write_behind": "increment"}
    index: type[RankIndex] = type("Behind", (RankIndex,), attributes)
    found = PendingStore.of(index.instance())
    assert found.rule == RULE
    return found
