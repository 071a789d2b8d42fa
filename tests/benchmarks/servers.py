"""The servers that are measured."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.test.utils import override_settings
from redis import Redis

from tests.servers import RedisServer

if TYPE_CHECKING:
    from tests.torture.databases import PostgreSQL

__all__ = ["PATIENT", "busy", "django_on_postgresql", "postgresql_server", "redis_server"]

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
