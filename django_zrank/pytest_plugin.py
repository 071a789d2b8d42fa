"""Fixtures for pytest: ``pytest_plugins = ["django_zrank.pytest_plugin"]`` in the top ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from .redis import isolation
from .testing import empty, make_server, reset, settings_for

__all__ = ["zrank", "zrank_server"]

isolation.offer()


@pytest.fixture(scope="session")
def zrank_server() -> Iterator[Any]:
    """The server of the test run, or with pytest-xdist of each worker. Its attribute ``url`` is its location.

    Override this fixture to use another server, which is emptied before each test.
    """
    with make_server() as server:
        yield server


@pytest.fixture
def zrank(zrank_server: Any, settings: Any, request: pytest.FixtureRequest) -> Redis:
    """A redis-py client of the server, which is emptied, and on which every index is built without members."""
    for name in ("transactional_db", "db"):  # reset() writes to the databases that the test may use
        if name in request.fixturenames:
            request.getfixturevalue(name)
    for name, value in settings_for(zrank_server).items():
        setattr(settings, name, value)
    client = empty(zrank_server)
    reset()
    return client
