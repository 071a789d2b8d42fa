"""The server and the watcher of ``manage.py demo``, which the page can kill and restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from django.db import connections
from redis import Redis

from django_zrank.jobs.running import running_jobs
from django_zrank.registry import registry
from django_zrank.sync.watch import watch

if TYPE_CHECKING:
    from django_zrank.testing import EmbeddedServer


class Stage:
    """The services of this process: the server, unless another command runs it, and ``sync_zrank --watch``."""

    def __init__(self) -> None:
        self.server: EmbeddedServer | None = None
        self.is_up = True
        self._lock = Lock()
        self._turn = Lock()
        self._stop = Event()
        self._watcher: Thread | None = None

    def save(self) -> None:
        """Make the server save its data."""
        if self.server:
            with Redis.from_url(self.server.url) as client:
                client.save()

    def kill(self) -> None:
        """Stop the server as a power cut would."""
        with self._lock:
            if self.server and self.is_up:
                self.server.kill()
                self.is_up = False

    def start(self) -> None:
        """Start the server again, with what it had saved."""
        with self._lock:
            if self.server and not self.is_up:
                self.server.start()
                self.is_up = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the indexes up to date, and run the admin's jobs, while the block runs."""
        self.watch()
        try:
            yield
        finally:
            with self._turn:
                self._end_watch()

    def watch(self) -> None:
        """Start the watcher, or restart it: one that has waited long for Redis polls rarely."""
        with self._turn:  # two at once would leave a watcher running
            self._end_watch()
            self._stop = Event()
            self._watcher = Thread(target=self._watch, args=(self._stop,), name="watcher")
            self._watcher.start()

    def _end_watch(self) -> None:
        self._stop.set()
        if self._watcher:
            self._watcher.join()
            self._watcher = None

    @staticmethod
    def _watch(stop: Event) -> None:
        indexes = registry.all()
        try:
            with running_jobs(indexes, stop):
                watch(indexes, interval=0.5, stop=stop)
        finally:
            connections.close_all()


stage = Stage()
"""The services of this process."""
