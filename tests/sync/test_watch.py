"""A process that keeps indexes in step: alone, among others, through outages, and until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import Build, Mark
from django_zrank.sync import drain as drain_module
from django_zrank.sync import marks as marks_module
from django_zrank.sync import watch as watch_module
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import forget
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import Synced, _resting, watch
from django_zrank.testing import EmbeddedServer
from tests.servers import wait_for
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending, PlayerRank
from tests.writes import begin_write

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


def test_follows_what_sends_no_signal(watching: Callable[..., Any]) -> None:
    rebuild(INDEX)
    _, reported = watching(interval=0.05)
    for level in range(3):
        Player.objects.bulk_create([Player(level=level)])
        assert reported.acquire(timeout=30)
    assert_mirrors(PlayerAscending)


class Naps(threading.Event):
    """Stops a watch after so many pauses, none of which takes any time."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        if len(self.pauses) == self.most:
            self.set()
        return self.is_set()


def all_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even those for which there is nothing to do."""
    monkeypatch.setattr(watch_module, "_resting", lambda indexes: set())


def syncing(monkeypatch: pytest.MonkeyPatch, work: Callable[..., Synced]) -> None:
    """Let a function take the place of ``sync()``."""

    def steps(*args: Any, **options: Any) -> Iterator[Any]:
        return work(*args, **options)
        yield

    monkeypatch.setattr(watch_module, "sync_steps", steps)


def naps(
    looks: int, interval: float, found: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """The pauses after each of some looks. ``found``: how many marks the look of this number finds."""
    stop = Naps(looks)
    all_have_a_turn(monkeypatch)
    syncing(monkeypatch, lambda index, look, limit, due: Synced(found(len(stop.pauses)), False))
    watch([INDEX], interval=interval, stop=stop)
    return stop.pauses


def test_pauses_grow_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    some = 20_000 if connection.vendor == "sqlite" else 5
    found = [0, 0, 0, some, some, 0, 0, 0, 0, 0, 0]
    assert naps(11, 0.5, found.__getitem__, monkeypatch) == [
        *(0.04, 0.08, 0.16),
        *(0.02, 0.02),
        *(0.04, 0.08, 0.16, 0.32, 0.5, 0.5),
    ]
    assert naps(3, 0.005, [0, 1, 0].__getitem__, monkeypatch) == [0.005] * 3


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="one writer at a time")
def test_a_few_marks_shorten_no_pause_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of the worker may fail a transaction that has read."""
    assert naps(6, 0.5, lambda look: 5, monkeypatch) == [0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_looks_at_triggers_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, every ten seconds, and after what went wrong."""
    looks: list[bool] = []
    now, stop = 1000.0, threading.Event()

    def look_at(index: Any, look: bool, limit: int, due: Any) -> Synced:
        nonlocal now
        looks.append(look)
        now += 4.0
        if len(looks) == 12:
            stop.set()
        if len(looks) == 8:
            raise IndexUnavailable("gone")
        return Synced(0, False)

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr(watch_module, "monotonic", clock)
    syncing(monkeypatch, look_at)
    all_have_a_turn(monkeypatch)
    watch([INDEX], interval=0.001, stop=stop)
    assert [number for number, look in enumerate(looks, 1) if look] == [1, 5, 9]


def test_indexes_at_rest_share_queries_and_a_round_trip(
    zrank: Redis,
    round_trips: list[str],
    declare: Callable[..., type[RankIndex]],
    django_assert_num_queries: Any,
) -> None:
    indexes = [
        INDEX,
        PlayerRank.instance(),
        *(declare(Player, order).instance() for order in ("level", "-level")),
    ]
    for index in indexes:
        rebuild(index)
    waiting = Mark.objects.all()
    waiting.delete()
    for some in (indexes[:1], indexes):
        round_trips.clear()
        with django_assert_num_queries(2):
            assert _resting(some) == set(some)
        assert round_trips == ["check_health"]


def test_an_index_does_not_rest_while_there_is_something_to_do(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {INDEX, PlayerRank.instance()}
    for index in both:
        rebuild(index)
    Mark.objects.all().delete()
    assert _resting(both) == both
    mark = Mark.objects.create(index=INDEX.name, member="1")
    assert _resting(both) == both - {INDEX}
    mark.delete()
    with monkeypatch.context() as patch:
        patch.setattr(marks_module, "NEWEST", 0)  # as many as that wait
        assert _resting(both) == set()
    marks_module._unasked.clear()
    zrank.hset(INDEX.ranking.store.keys.meta, "behind", "rebuild")
    assert _resting(both) == both - {INDEX}
    zrank.hdel(INDEX.ranking.store.keys.meta, "behind")
    Build.objects.filter(index=INDEX.name).update(term=F("term") + 1)
    assert _resting(both) == both - {INDEX}
    Build.objects.filter(index=INDEX.name).update(term=F("term") - 1)
    assert _resting(both) == both
    zrank.flushall()
    assert _resting(both) == set()


@pytest.mark.part("write_behind")
def test_an_index_with_extensions_has_a_turn() -> None:
    from tests.testapp.zrank import VideoRank

    rebuild(VideoRank.instance())
    assert _resting([VideoRank.instance()]) == set()


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="two-phase commits, advisory locks")
def test_a_transaction_can_be_prepared_while_somebody_watches(watching: Callable[..., Any]) -> None:
    """PostgreSQL refuses it to a transaction that has notified."""
    rebuild(INDEX)
    _, reported = watching(interval=0.05)
    Player.objects.bulk_create([Player(level=1)])
    assert reported.acquire(timeout=30)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO testapp_nickname VALUES ('a', 1)")
        cursor.execute("UPDATE testapp_player SET level = 2")
        cursor.execute("PREPARE TRANSACTION 'zrank'")
        cursor.execute("COMMIT PREPARED 'zrank'")
        assert reported.acquire(timeout=30)
        assert_mirrors(PlayerAscending)
        # Nor has a watch a lock of its session: by way of a pooler the next transaction may be another connection's.
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        assert cursor.fetchone() == (0,)
        cursor.execute(
            "SELECT count(*) FROM pg_proc WHERE prosrc ~ 'pg_notify|advisory' AND proname ~ '^zrank_'"
        )
        assert cursor.fetchone() == (0,)


def reads_marks() -> bool:
    """True if a save does, which is the first one for a second: it processes what others left."""
    drain_module._done.forget(("drain", INDEX.name))
    forget(INDEX)
    player = Player.objects.first() or Player(level=0)
    with CaptureQueriesContext(connection) as queries:
        player.level = (player.level or 0) + 1
        player.save()
    assert PlayerAscending.ranking.score(player.pk) == player.level
    read = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    return any("zrank_mark" in sql and "'ascending'" in sql for sql in read)


def test_where_somebody_watches_a_save_only_pushes(watching: Callable[..., Any]) -> None:
    rebuild(INDEX)
    assert reads_marks()
    stop, _ = watching(interval=0.02)
    wait_for(lambda: begin_write(INDEX.ranking.store).is_watched)
    assert not any(reads_marks() for _ in range(10))
    stop.set()
    wait_for(reads_marks)


def test_a_watcher_that_was_killed_is_missed() -> None:
    rebuild(INDEX)
    INDEX.ranking.store.note_watcher(30)
    assert not reads_marks()
    INDEX.ranking.store.note_watcher(0.1)
    wait_for(reads_marks)
    assert not begin_write(INDEX.ranking.store).is_watched


def test_many_may_watch(watching: Callable[..., Any]) -> None:
    rebuild(INDEX)
    for _ in range(3):
        _, reported = watching(interval=0.02)
    Player.objects.bulk_create([Player(level=level) for level in range(500)])
    while waiting_marks(INDEX).exists():
        assert reported.acquire(timeout=30)
    assert_mirrors(PlayerAscending)


def test_survives_an_outage_and_backs_off(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs an outage once, not each attempt."""
    rebuild(INDEX)
    own_server.stop()
    stop = Naps(9)
    monkeypatch.setattr(watch_module, "monotonic", lambda: 1000 + sum(stop.pauses))
    watch([INDEX], interval=0.5, stop=stop)
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning.startswith("Index 'ascending' is not up to date, retrying. Redis can't be reached: ")
    assert stop.pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]


def test_what_fails_for_another_reason_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt may be a long rebuild."""
    stop = Naps(8)
    monkeypatch.setattr(watch_module, "monotonic", lambda: 1000 + sum(stop.pauses))

    def fail(*args: Any, **kwargs: Any) -> Synced:
        raise RuntimeError

    syncing(monkeypatch, fail)
    watch([INDEX], interval=0.5, stop=stop)
    assert stop.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_one_index_that_fails_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, stop = type("Broken", (PlayerAscending,), {"name": "broken"}).instance(), threading.Event()
    rebuild(INDEX)
    Player.objects.bulk_create([Player(level=1)])

    def drain(index: Any, look: bool, limit: int, due: Any) -> Synced:
        if index is broken:
            raise IndexUnavailable("broken")
        stop.set()
        return drain_module.alone(index, for_real(index, look=look, limit=limit, due=due))

    for_real = watch_module.sync_steps
    syncing(monkeypatch, drain)
    watch([broken, INDEX], interval=0.01, stop=stop)
    assert_mirrors(PlayerAscending)


def test_a_closed_connection_is_opened_again(
    watching: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild(INDEX)

    def break_it() -> None:
        connection.ensure_connection()
        connection.connection.close()

    just_before(monkeypatch, watch_module, "drain_steps", break_it)
    _, reported = watching(interval=0.05)
    Player.objects.bulk_create([Player(level=1)])
    assert reported.acquire(timeout=30)
    assert connection.vendor
    assert_mirrors(PlayerAscending)


def test_many_marks_of_one_index_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor SIGTERM: whoever is to stop does so after its turn."""
    rebuild(INDEX)
    other = PlayerRank.instance()
    rebuild(other)
    Player.objects.bulk_create(Player(level=level) for level in range(30))
    monkeypatch.setattr(watch_module, "_TURN", 10)
    stop, turns = threading.Event(), list[str]()

    def report(index: Any, done: Synced) -> None:
        turns.append(index.name)
        if len(turns) == 3:
            stop.set()

    watch([INDEX, other], interval=0.01, stop=stop, report=report)
    assert turns == [INDEX.name, other.name] * 2
    assert (waiting_marks(INDEX).count(), waiting_marks(other).count()) == (20, 20)
