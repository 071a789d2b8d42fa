"""A process that keeps indexes in step: alone, among others, through outages, and until it is told to stop."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_zrank.exceptions import IndexUnavailable, RebuildSuperseded
from django_zrank.sync import watch as watch_module
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.triggers import CHANNEL, LISTENING
from django_zrank.sync.watch import sync, watch
from django_zrank.testing import EmbeddedServer
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = PlayerAscending.instance()


@pytest.fixture
def watching() -> Iterator[Callable[..., tuple[threading.Event, threading.Semaphore]]]:
    """Starts a watch in a thread. Returns the event that stops it, and a semaphore released by each report."""
    stop, reported, threads = threading.Event(), threading.Semaphore(0), []

    def start(interval: float) -> tuple[threading.Event, threading.Semaphore]:
        def run() -> None:
            try:
                watch([INDEX], interval=interval, stop=stop, report=lambda index, marks: reported.release())
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()
        return stop, reported

    yield start
    stop.set()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_sync_mends_and_drains(zrank: Any) -> None:
    zrank.flushall()
    Player.objects.bulk_create([Player(level=1)])
    sync(INDEX)
    assert_mirrors(PlayerAscending)
    Player.objects.update(level=2)
    assert sync(INDEX) == 1
    assert_mirrors(PlayerAscending)


def test_sync_leaves_a_rebuild_that_is_running_alone(zrank: Any) -> None:
    rebuild(INDEX)
    zrank.hset(INDEX.ranking.store.keys.meta, "generation", "foreign")
    INDEX.ranking.store.start_rebuild("running")
    with pytest.raises(RebuildSuperseded):
        sync(INDEX)
    assert INDEX.ranking.store.check_health().building == "running"


def test_follows_what_sends_no_signal(watching: Callable[..., Any]) -> None:
    rebuild(INDEX)
    _, reported = watching(interval=0.05)
    for level in range(3):
        Player.objects.bulk_create([Player(level=level)])
        assert reported.acquire(timeout=30)
    assert_mirrors(PlayerAscending)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="the others can't tell")
def test_postgresql_wakes_it(watching: Callable[..., Any]) -> None:
    """With an hour between two looks, only being told explains that it comes."""
    rebuild(INDEX)
    Player.objects.bulk_create([Player(level=1)])
    _, reported = watching(interval=3600.0)
    assert reported.acquire(timeout=30)
    Player.objects.bulk_create([Player(level=2)])
    assert reported.acquire(timeout=30)
    assert_mirrors(PlayerAscending)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="the others can't tell")
def test_postgresql_tells_of_every_burst(watching: Callable[..., Any]) -> None:
    """Writers tell only one who waits, and it waits only when it found nothing: no burst may fall in between."""
    rebuild(INDEX)
    watching(interval=3600.0)
    rng = random.Random(1)

    def burst(seed: int) -> None:
        for _ in range(rng.randrange(1, 4)):
            with transaction.atomic():
                Player.objects.bulk_create([Player(level=seed)])
                time.sleep(rng.random() * 0.01)
        connections.close_all()

    for seed in range(100):
        writers = [threading.Thread(target=burst, args=[seed]) for _ in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        deadline = time.monotonic() + 10
        while waiting_marks(INDEX).exists():
            assert time.monotonic() < deadline, "nobody came"
            time.sleep(0.001)
    assert_mirrors(PlayerAscending)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="the others can't tell")
def test_a_mark_between_a_look_and_the_request_to_be_told(
    watching: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer saw nobody wait. So the watch asks first, and looks once more."""
    rebuild(INDEX)
    waiting_marks(INDEX).delete()  # what flushing the tables left
    ask, written = watch_module._ask, threading.Event()

    def write_and_ask(indexes: Any) -> bool:
        if not written.is_set():
            written.set()
            Player.objects.bulk_create([Player(level=1)])
        return ask(indexes)

    monkeypatch.setattr(watch_module, "_ask", write_and_ask)
    _, reported = watching(interval=3600.0)
    assert reported.acquire(timeout=10)
    assert_mirrors(PlayerAscending)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="nobody is told otherwise")
def test_writers_tell_nobody_who_does_not_wait() -> None:
    rebuild(INDEX)
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {CHANNEL}")
        Player.objects.bulk_create([Player(level=1)])
        assert list(connection.connection.notifies(timeout=0.1)) == []
        cursor.execute("SELECT pg_advisory_lock(%s)", [LISTENING])
        # Of one's own session the lock is no obstacle: it takes another to tell.
        other = connections.create_connection("default")
        try:
            with other.cursor() as theirs:
                theirs.execute("INSERT INTO testapp_nickname VALUES ('a', 1)")
        finally:
            other.close()
        assert [told.payload for told in connection.connection.notifies(timeout=5, stop_after=1)] == [
            "nickname"
        ]
        cursor.execute("SELECT pg_advisory_unlock(%s)", [LISTENING])
        cursor.execute(f"UNLISTEN {CHANNEL}")


def test_many_may_watch(watching: Callable[..., Any]) -> None:
    rebuild(INDEX)
    for _ in range(3):
        _, reported = watching(interval=0.02)
    Player.objects.bulk_create([Player(level=level) for level in range(500)])
    while waiting_marks(INDEX).exists():
        assert reported.acquire(timeout=30)
    assert_mirrors(PlayerAscending)


def test_survives_an_outage_and_backs_off(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild(INDEX)
    own_server.stop()
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 9:
                self.set()
            return self.is_set()

    watch([INDEX], interval=0.5, stop=Stop())
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_one_index_that_fails_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, stop = type("Broken", (PlayerAscending,), {"name": "broken"}).instance(), threading.Event()
    rebuild(INDEX)
    Player.objects.bulk_create([Player(level=1)])

    def drain(index: Any) -> int:
        if index is broken:
            raise IndexUnavailable("broken")
        stop.set()
        return sync_for_real(index)

    sync_for_real = sync
    monkeypatch.setattr(watch_module, "sync", drain)
    watch([broken, INDEX], interval=0.01, stop=stop)
    assert_mirrors(PlayerAscending)


def test_a_closed_connection_is_opened_again(
    watching: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild(INDEX)
    broke = threading.Event()
    drain = watch_module.drain

    def break_once(index: Any) -> int:
        if not broke.is_set():
            broke.set()
            connections[index.get_using()].ensure_connection()
            connections[index.get_using()].connection.close()
        return drain(index)

    monkeypatch.setattr(watch_module, "drain", break_once)
    _, reported = watching(interval=0.05)
    Player.objects.bulk_create([Player(level=1)])
    assert reported.acquire(timeout=30)
    assert connection.vendor
    assert_mirrors(PlayerAscending)
