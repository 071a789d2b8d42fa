from __future__ import annotations

import pytest

from django_zrank.codec.layout import PLAIN
from django_zrank.store import Store
from django_zrank.write_behind.store import PendingStore
from tests.lua.conftest import live, store  # noqa: F401
from tests.lua.lib.conftest import run  # noqa: F401

from .scripted import RULE, ruled


@pytest.fixture
def scores(store: Store) -> PendingStore:  # noqa: F811
    """The index of ``store``. It has write-behind scores."""
    return ruled(store.name, PLAIN, RULE)
