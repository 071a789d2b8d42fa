"""Fixtures for pytest: ``pytest_plugins = ["django_zrank.pytest_plugin"]`` in the top ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django_redis import get_redis_connection
from redis import Redis

from .conf import get_settings
from .testing import EmbeddedServer, reset

__all__ = ["zrank", "zrank_server"]


@pytest.fixture(scope="session")
def zrank_server() -> Iterator[EmbeddedServer]:
    """A server for the test run."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def zrank(zrank_server: EmbeddedServer, settings: Any, request: pytest.FixtureRequest) -> Redis:
    """The server emptied, with every index built and empty. Its value is the raw client."""
    for name in ("transactional_db", "db"):  # the databases are told of it, once the test may use them
        if name in request.fixturenames:
            request.getfixturevalue(name)
    alias = get_settings().redis_alias
    settings.CACHES = {
        **settings.CACHES,
        alias: {**settings.CACHES[alias], "LOCATION": zrank_server.url},
    }
    client: Redis = get_redis_connection(alias)
    client.flushall()
    reset()
    return client
