from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from redis import Redis

from django_zrank.queries.view import View
from django_zrank.store import Store
from tests.populations import fill
from tests.testapp.zrank import PlayerAscending


@pytest.fixture
def store(zrank: Redis) -> Store:
    """A built index of three members: 1, 2 and 3, each its own score."""
    return fill(PlayerAscending, {1: 1, 2: 2, 3: 3})


@pytest.fixture
def live(zrank: Redis, store: Store) -> Any:
    """A function that reads the live sorted set."""
    return lambda: {
        member.decode(): score for member, score in zrank.zrange(store.live.root, 0, -1, withscores=True)
    }


def ask(store: Store, question: Any, **how: Any) -> Any:
    """The answer to a question about all members, or those of a ranking."""
    return store.run(partial(question.steps, View(store.layout, **how)))
