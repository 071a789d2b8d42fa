"""The Valkey server that the example's commands share: started if none is running."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import redis
from django.conf import settings
from django.core.cache import caches
from django.core.management import CommandError
from redis.backoff import NoBackoff
from redis.retry import Retry


class Record(NamedTuple):
    """The file that a command writes while it runs the server. Left behind only if the command was killed."""

    port: int
    pid: int

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        try:
            port, pid = (folder / "running").read_text().split()
            return cls(int(port), int(pid))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, folder: Path) -> None:
        (folder / "running").write_text(f"{self.port} {self.pid}\n")

    def is_current(self) -> bool:
        """Return True if the command that wrote it is still running."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


def recorded_port(folder: Path) -> int | None:
    """The port of the server that stores in ``folder``; None if none is running."""
    record = Record.read(folder)
    return record.port if record else None


def is_free(port: int) -> bool:
    """Return True if a server could listen on this port of localhost."""
    with socket.socket() as probe:
        # As servers do: the port of a server that has just stopped is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def running_server() -> Iterator[str]:
    """Run the block with the example's own Valkey, and settings that point to it. Yields its address.

    A server that another command runs (the demo is serving in another terminal) is used and left running.
    """
    folder: Path = settings.VALKEY_DIR
    record = Record.read(folder)
    ours = [
        port for port in {recorded_port(folder), settings.VALKEY_PORT} if port and _stores_in(folder, port)
    ]
    if ours and record and record.is_current():
        yield _point_settings_at(f"redis://127.0.0.1:{record.port}/0")
        return
    for port in ours:  # of a command that was killed
        with _client(port) as client:
            client.shutdown(nosave=True, force=True)

    try:
        from arena.stage import stage
        from django_zrank.testing import EmbeddedServer

        port = settings.VALKEY_PORT
        server = EmbeddedServer(port=port if is_free(port) else None, data_dir=folder)
    except ImportError as error:
        raise CommandError(str(error)) from error
    # A plain kill must stop the server too: left alone it would run on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server.start()
    stage.server = server
    try:
        url = _point_settings_at(server.url)
        Record(redis.ConnectionPool.from_url(url).connection_kwargs["port"], os.getpid()).write(folder)
        yield url
    finally:
        stage.server = None
        if stage.is_up:
            server.stop()
        (folder / "running").unlink(missing_ok=True)


def _stores_in(folder: Path, port: int) -> bool:
    """Return True if the server at ``port`` is the example's: it answers, and keeps its data in ``folder``."""
    with suppress(redis.RedisError), _client(port) as client:
        return client.config_get("dir").get("dir") == str(folder)
    return False


def _client(port: int) -> redis.Redis:
    """A client that doesn't retry: by default it would try for seconds to reach a server that is not running."""
    return redis.Redis(
        port=port, socket_timeout=1, decode_responses=True, retry=Retry(NoBackoff(), retries=0)
    )


def _point_settings_at(url: str) -> str:
    """Point this process's settings to the server at ``url``, before the first connection."""
    alias = settings.ZRANK["REDIS_ALIAS"]
    settings.CACHES[alias]["LOCATION"] = url
    with suppress(AttributeError):
        del caches[alias]
    return url
