"""Servers that the suite starts for itself: own folder, own port, gone when the tests are."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.startable import Freezable

__all__ = ["ONCE", "RedisServer", "free_port", "wait_for"]

ONCE: Final = Retry(NoBackoff(), retries=0)
"""Let a client try a command once, and say at once what is wrong."""

_reservations: Final[list[socket.socket]] = []


class RedisServer(Freezable):
    """A ``redis-server`` or ``valkey-server`` started from ``binary``: no persistence, loopback only.

    The port is kept over :meth:`stop`, :meth:`kill` and :meth:`start`, so that a client can meet the same
    server again; what it held is gone.
    """

    def __init__(self, binary: str | Path, *, timeout: float = 10.0) -> None:
        self.binary = str(binary)
        self.timeout = timeout
        self.port = free_port()
        self.settings: dict[str, object] = {}
        """More of its configuration."""

        self.password = ""
        """The password of clients, from ``settings["requirepass"]``."""

        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """Database 0 of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def is_running(self) -> bool:
        """Return True if it was started, and not ended since."""
        return self._process is not None

    def start(self, dump: bytes | None = None, *, nodes: bytes | None = None) -> None:
        """Start it, empty or with a dump, and wait until it answers PING; RuntimeError, with its log, if it does not in
        time. ``nodes``: what a node of a cluster knew of the others and of its own slots."""
        if self._process is not None:
            raise RuntimeError("already running")
        self._folder = Path(tempfile.mkdtemp(prefix="zrank-redis-"))
        for name, held in (("dump.rdb", dump), ("nodes.conf", nodes)):
            if held is not None:
                (self._folder / name).write_bytes(held)
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self._folder,
            "save": "",
            "appendonly": "no",
            "repl-diskless-sync-delay": 0,  # a replica need not wait for others
            "logfile": self._folder / "log",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen([self.binary, *options], stdout=subprocess.DEVNULL)
        if not self._answers():
            log = self._folder / "log"
            said = log.read_text() if log.exists() else "it wrote no log"
            self.kill()
            raise RuntimeError(f"{self.binary} does not answer on port {self.port}: {said}")

    def stop(self) -> None:
        """End it in good order. Does nothing if it is not running."""
        if self._process is not None:
            self._process.terminate()
            self._clear()

    def kill(self) -> None:
        """End it as a crash would, with no word to its clients. Does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._clear()

    def nodes(self) -> bytes:
        """Return what a node of a cluster has noted of the others and of its own slots."""
        assert self._folder is not None
        return (self._folder / "nodes.conf").read_bytes()

    def restart(self) -> None:
        """Stop it and start it again, empty, on the same port."""
        self.stop()
        self.start()

    # One of several

    def ask(self, *command: Any) -> Any:
        """Send one command, and return what the server answers."""
        with redis.Redis(
            port=self.port,
            password=self.password or None,
            socket_timeout=self.timeout,
            decode_responses=True,
            retry=ONCE,
        ) as client:
            return client.execute_command(*command)

    def follow(self, port: int) -> None:
        """Become a replica of the server at ``port``, and wait until it holds what that one holds."""
        self.ask("REPLICAOF", "127.0.0.1", port)
        wait_for(self.is_in_step, self.timeout)

    def is_in_step(self) -> bool:
        """Return True if it is a replica that hears from its primary."""
        return bool(self.ask("INFO", "replication").get("master_link_status") == "up")

    def promote(self) -> None:
        """Become a primary, with what it holds."""
        self.ask("REPLICAOF", "NO", "ONE")

    def _answers(self) -> bool:
        """Return True if it answers PING before the time is up; False at once if it has ended."""
        assert self._process is not None
        deadline = time.monotonic() + self.timeout
        with redis.Redis.from_url(
            self.url, password=self.password, socket_timeout=1, socket_connect_timeout=1, retry=ONCE
        ) as client:
            while self._process.poll() is None and time.monotonic() < deadline:
                try:
                    # Whose port it is must be known: another server may have taken it first.
                    return bool(client.info("server")["process_id"] == self._process.pid)
                except (redis.ConnectionError, redis.TimeoutError):
                    time.sleep(0.01)  # It has no event to wait for: the port opens when it opens.
        return False

    def _clear(self) -> None:
        assert self._process is not None
        assert self._folder is not None
        self._process.wait(timeout=self.timeout)
        self._process = None
        shutil.rmtree(self._folder)


def free_port() -> int:
    """Return a port that nobody uses now, and that no other test takes before this process ends: that of a server that
    isn't started yet, or was killed and is started again, would look free. It lies below those that the system hands
    out, of which any connection may take one at any time."""
    while True:
        # Hypothesis seeds random, and so would give two workers the same port.
        port = 12_000 + secrets.randbelow(20_000)
        # UDP has ports of its own, so this keeps no server from listening.
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
        else:
            _reservations.append(reservation)
            return port


def wait_for(condition: Callable[[], bool], seconds: float = 20, *, pause: float = 0.01) -> None:
    """Poll until the condition holds; RuntimeError if it doesn't in time. For what notifies nobody."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Not so after {seconds} s: {condition}")
        time.sleep(pause)
