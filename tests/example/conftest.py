"""The example run as a user runs it: its commands as processes of their own, in a folder of their own."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

import django_zrank
from tests.servers import ONCE, free_port

ROOT = Path(__file__).resolve().parents[2]
MANAGE = ROOT / "example_project" / "manage.py"
PLAYERS = 2000


@dataclass
class Arena:
    """One folder for the example's database and server, and the commands that run on it."""

    var: Path
    environment: dict[str, str]

    def manage(self, *words: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self._command(*words),
            env=self.environment,
            cwd=self.var,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Run a command that goes on. What it prints goes to ``out`` and ``err`` in the folder."""
        with (self.var / "out").open("w") as out, (self.var / "err").open("w") as err:
            return subprocess.Popen(
                self._command(*words), env=self.environment, cwd=self.var, stdout=out, stderr=err, text=True
            )

    def query(self, sql: str) -> list[Any]:
        """The rows that a statement returns. The example's database keeps what it changes."""
        with closing(sqlite3.connect(self.var / "arena.sqlite3", timeout=20)) as database, database:
            return database.execute(sql).fetchall()

    def levels(self) -> dict[int, int]:
        """The level of every player."""
        return dict(self.query("SELECT id, level FROM players_player"))

    def valkey_answers(self, port: int | str | None = None) -> bool:
        """Return True if a Valkey listens there, by default where the arena would have its own."""
        with redis.Redis(port=int(port or self.environment["ARENA_VALKEY_PORT"]), retry=ONCE) as client:
            try:
                return client.ping()
            except redis.ConnectionError:
                return False

    def _command(self, *words: object) -> list[str]:
        return [sys.executable, "-W", "error", str(MANAGE), *map(str, words)]


@dataclass
class Site:
    """An arena that is being served."""

    arena: Arena
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def valkey_port(self) -> int:
        return int((self.arena.var / "valkey" / "running").read_text().split()[0])

    def stop(self) -> int:
        """End it as ``kill`` does, if it hasn't ended; its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=20)


@pytest.fixture(scope="session")
def new_arena(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Arena]:
    """Makes arenas: nothing is there yet."""

    def new() -> Arena:
        var = tmp_path_factory.mktemp("arena")
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"DJANGO_SETTINGS_MODULE", "ARENA_DEBUG", "COLUMNS"}
        }
        environment |= {
            "ARENA_VAR": str(var),
            "ARENA_VALKEY_PORT": str(free_port()),
            # The copy of the app that is tested here, installed or not.
            "PYTHONPATH": str(Path(django_zrank.__file__).resolve().parents[1]),
        }
        return Arena(var, environment)

    return new


@pytest.fixture
def arena(new_arena: Callable[[], Arena]) -> Arena:
    """An arena of this test alone."""
    return new_arena()


@pytest.fixture(scope="session")
def serve(new_arena: Callable[[], Arena]) -> Callable[..., AbstractContextManager[Site]]:
    """``with serve() as site``: a new arena whose demo is served. Takes further environment variables."""

    @contextmanager
    def serve(**environment: str) -> Iterator[Site]:
        arena, port = new_arena(), free_port()
        arena.environment |= environment
        process = arena.start("demo", "--players", PLAYERS, "--json", "--port", port)
        site = Site(arena, port, process)
        try:
            wait_for(site)
            yield site
        finally:
            try:
                site.stop()
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    return serve


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[Site]]) -> Iterator[Site]:
    """The demo with its site served, for the tests of one module."""
    with serve() as site:
        yield site


def wait_for(site: Site, seconds: float = 120) -> None:
    """Until the site's port answers. It opens when it opens: there is no event to wait for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and site.process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", site.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"The demo did not serve: {(site.arena.var / 'err').read_text()}")
