"""The servers that are measured."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.db import connection, connections
from django.test.utils import override_settings
from redis import Redis

from tests.servers import RedisServer

if TYPE_CHECKING:
    from tests.torture.databases import PostgreSQL

__all__ = [
    "PATIENT",
    "busy",
    "django_on_postgresql",
    "environment",
    "postgresql_server",
    "private_postgresql",
    "redis_server",
    "tables",
]

PATIENT = {"SOCKET_TIMEOUT": 60, "SOCKET_CONNECT_TIMEOUT": 60}
"""On a busy machine a batch of rows may take longer than a web request would wait for it."""


@contextmanager
def redis_server() -> Iterator[tuple[Redis, str]]:
    """A server of our own, which ``ZRANK["REDIS_ALIAS"]`` leads to; a client of it; and what the server is called.

    It is the one that ``ZRANK_TEST_REDIS_BINARY`` names, by default the embedded one.
    """
    from django_zrank.testing import EmbeddedServer

    binary = os.environ.get("ZRANK_TEST_REDIS_BINARY")
    with RedisServer(binary) if binary else EmbeddedServer() as server:
        alias: dict[str, Any] = {**settings.CACHES["zrank"], "LOCATION": server.url, "OPTIONS": PATIENT}
        with (
            override_settings(CACHES={**settings.CACHES, "zrank": alias}),
            Redis.from_url(server.url) as client,
        ):
            about: Any = client.info("server")
            name = "Valkey" if "valkey_version" in about else "Redis"
            yield client, f"{name} {about.get('valkey_version') or about['redis_version']}"


def environment(redis: Redis) -> dict[str, str]:
    """The environment of a process that works on the current database and on this server."""
    port = redis.connection_pool.connection_kwargs["port"]
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.sync.subprocess_settings",
        "ZRANK_TEST_NAMES": json.dumps({"default": connection.settings_dict["NAME"]}),
        "ZRANK_TEST_REDIS_URL": f"redis://127.0.0.1:{port}/0",
    }


@contextmanager
def tables() -> Iterator[None]:
    """The tables of the suite, in a database of our own that other processes can open, too. Connections stay open."""
    name = connection.settings_dict["NAME"]
    connection.settings_dict["CONN_MAX_AGE"] = None
    with tempfile.TemporaryDirectory(prefix="zrank-bench-") as folder:
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(Path(folder) / "zrank.sqlite3")
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            yield
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)
            connections.close_all()


def busy(redis: Redis) -> float:
    """Return the seconds for which a server has used the processor."""
    used: Any = redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


@contextmanager
def postgresql_server(*, private: bool) -> Iterator[PostgreSQL | None]:
    """A server of our own, in a folder that is gone with it; or, unless it must be ``private``, the one that the
    environment names. None where no server is installed."""
    from tests.torture.databases import PostgreSQL

    with tempfile.TemporaryDirectory(prefix="zrank-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server runs as another user, and must get to its files
        server = PostgreSQL(folder)
        server.private = server.private or private
        if server.private and not Path(server.program("initdb")).exists():
            yield None
            return
        server.start()
        try:
            yield server
        finally:
            with suppress(OSError):
                server.stop()


@contextmanager
def private_postgresql() -> Iterator[Any]:
    """A connection of psycopg to a private server. Where something is missing, it says so, and there is None."""
    try:
        import psycopg
    except ImportError:
        print("Without the rival PostgreSQL: pip install psycopg[binary]")
        yield None
        return
    # Not the server that the environment names: tables are created in it.
    with postgresql_server(private=True) as server:
        if server is None:
            print("Without the rival PostgreSQL: its server is not installed")
            yield None
            return
        with psycopg.connect(host=str(server.socket), user=server.user, autocommit=True) as connected:
            yield connected


@contextmanager
def django_on_postgresql() -> Iterator[bool]:
    """Set up Django on the PostgreSQL server that the environment names, or on a private one. False where none is
    installed."""
    with postgresql_server(private=False) as server:
        if server is None:
            print("Needs a PostgreSQL server")
        else:
            os.environ.update({"DJANGO_SETTINGS_MODULE": "tests.settings", **server.environment})
            django.setup()
        yield server is not None


def ranked(model: Any, number: int) -> Any:
    """Return an index by ``level`` of the active rows of a model, the one with this number."""
    from django_zrank import RankIndex

    attributes = {
        "model": model,
        "order": ("-level",),
        "name": f"{model._meta.model_name}-{number}",
        "get_queryset": lambda self: model.objects.filter(is_active=True),
    }
    return type("BenchRank", (RankIndex,), attributes).instance()
