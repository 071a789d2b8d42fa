"""Flushes where the database refuses, changes, locks or delays some rows: the others are written all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from redis import Redis

from django_zrank import RankIndex
from django_zrank.exceptions import Busy
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import watch
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.store import PendingStore
from tests.sync.mirror import contents
from tests.testapp.models import Host, Video
from tests.testapp.zrank import VideoRank

from .test_scores import column

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = VideoRank.instance()
TABLE = connection.ops.quote_name(Video._meta.db_table)

CAP = {
    "postgresql": "IF NEW.views > 100 THEN NEW.views = 100; END IF; RETURN NEW;",
    "mysql": "SET NEW.views = LEAST(NEW.views, 100)",
}
SKIP = {
    "postgresql": "IF OLD.views = 95 THEN RETURN NULL; END IF; RETURN NEW;",
    "sqlite": "SELECT RAISE(IGNORE) WHERE OLD.views = 95",
}
REFUSE = {
    "postgresql": "IF OLD.views = 95 THEN RAISE EXCEPTION 'closed'; END IF; RETURN NEW;",
    "mysql": "IF OLD.views = 95 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'closed'; END IF",
    "sqlite": "SELECT RAISE(ABORT, 'closed') WHERE OLD.views = 95",
}
DELAY = {
    "postgresql": "PERFORM pg_sleep(0.5); RETURN NEW;",
    "mysql": "DO SLEEP(0.02)",
    "sqlite": "SELECT 1",
}


@pytest.fixture
def videos() -> list[Video]:
    """Videos of 95 views, and one of 10."""
    videos = [Video.objects.create(views=views) for views in (95, 10)]
    assert contents(VideoRank) == column()
    return videos


@contextmanager
def trigger(body: str) -> Iterator[None]:
    """A trigger of the user's, before each update of a row."""
    make, drop = {
        "postgresql": (
            f"""CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
            CREATE TRIGGER own BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION own()""",
            f"DROP TRIGGER own ON {TABLE}; DROP FUNCTION own",
        ),
        "mysql": (
            f"CREATE TRIGGER own BEFORE UPDATE ON {TABLE} FOR EACH ROW BEGIN {body}; END",
            "DROP TRIGGER own",
        ),
        "sqlite": (f"CREATE TRIGGER own BEFORE UPDATE ON {TABLE} BEGIN {body}; END", "DROP TRIGGER own"),
    }[connection.vendor]
    run(make)
    try:
        yield
    finally:
        run(drop)


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def locked(*videos: Video) -> Iterator[None]:
    """Another connection holds the locks on these rows."""
    ready, release = Event(), Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                list(Video.objects.select_for_update().filter(pk__in=[video.pk for video in videos]))
                if connection.vendor == "sqlite":  # which locks all tables at once
                    Video.objects.filter(pk=videos[0].pk).update(region="")
                ready.set()
                assert release.wait(60)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=1) as thread:
        holding = thread.submit(hold)
        try:
            assert ready.wait(60)
            yield
        finally:
            release.set()
            holding.result()


def in_step(index: type[RankIndex] = VideoRank) -> dict[str, Any]:
    """Return the column, which the ranking has by now."""
    call_command("sync_zrank", index.instance().name)
    assert verify(index.instance()).ok
    assert read_gauges(index.instance()).pending == 0
    assert contents(index) == column(index)
    return column(index)


@pytest.mark.parametrize(
    ("bodies", "left"), [(CAP, 100), (SKIP, 95), (REFUSE, 95)], ids=["caps", "skips", "refuses"]
)
@pytest.mark.parametrize("views", [7, 5])
def test_a_trigger_that_writes_something_else(
    bodies: dict[str, str], left: int, views: int, videos: list[Video]
) -> None:
    if connection.vendor not in bodies:
        pytest.skip("such triggers can't be made there")
    first, second = videos
    VideoRank.scores.increment({first: views, second: 1})
    with trigger(bodies[connection.vendor]):
        assert in_step() == {str(first.pk): left, str(second.pk): 11}
        # The column doesn't change at all.
        VideoRank.scores.increment({first: views, second: 1})
        assert in_step() == {str(first.pk): left, str(second.pk): 12}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="has no row-level security")
def test_a_row_that_a_policy_hides_or_protects(videos: list[Video]) -> None:
    first, second = videos
    VideoRank.scores.increment({first: 7, second: 1})
    policies = (
        f"CREATE POLICY seen ON {TABLE} FOR SELECT USING (true)",
        f"CREATE POLICY written ON {TABLE} FOR UPDATE USING (true) WITH CHECK (views < 100)",
        "CREATE ROLE zrank_writer",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO zrank_writer",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO zrank_writer",
        f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY",
        "SET ROLE zrank_writer",
    )
    ends = (
        "RESET ROLE",
        f"ALTER TABLE {TABLE} DISABLE ROW LEVEL SECURITY",
        f"DROP POLICY seen ON {TABLE}; DROP POLICY written ON {TABLE}",
        "DROP OWNED BY zrank_writer",
        "DROP ROLE zrank_writer",
    )
    with ExitStack() as stack:
        for sql in reversed(ends):
            stack.callback(run, sql)
        for sql in policies:
            run(sql)
        flush(INDEX)
    assert in_step() == {str(first.pk): 95, str(second.pk): 11}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="needs roles")
def test_what_is_refused_for_every_row_is_given_up_for_none(videos: list[Video]) -> None:
    first, second = videos
    VideoRank.scores.increment({first: 7, second: 1})
    with ExitStack() as stack:
        stack.callback(run, "DROP ROLE zrank_reader")
        stack.callback(run, "DROP OWNED BY zrank_reader")
        stack.callback(run, "RESET ROLE")
        run("CREATE ROLE zrank_reader")
        run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO zrank_reader")
        run("SET ROLE zrank_reader")
        with pytest.raises(Exception, match="permission denied"):
            flush(INDEX)
    assert in_step() == {str(first.pk): 102, str(second.pk): 11}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="locks no rows")
def test_a_locked_row_does_not_stop_the_others(videos: list[Video], zrank: Redis) -> None:
    first, second = videos
    VideoRank.scores.increment({first: 7, second: 1})
    with locked(first):
        with pytest.raises(Busy, match="1 row is locked"):
            flush(INDEX, patience=0.0)
        assert column() == {str(first.pk): 95, str(second.pk): 11}
        VideoRank.scores.increment({first: 1, second: 1})
        assert contents(VideoRank) == {str(first.pk): 103, str(second.pk): 12}
        # Rebuilt meanwhile, it has what is pending.
        rebuild(INDEX)
        with pytest.raises(Busy):
            flush(INDEX, patience=0.0)
        assert contents(VideoRank) == {str(first.pk): 103, str(second.pk): 12}
        assert read_gauges(INDEX).pending == 1
    assert in_step() == {str(first.pk): 103, str(second.pk): 12}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="locks no rows")
def test_a_locked_row_does_not_stop_marks(videos: list[Video]) -> None:
    first, second = videos
    VideoRank.scores.increment({first: 7, second: 1})
    Video.objects.filter(pk=second.pk).update(views=50)
    with locked(first):
        with pytest.raises(CommandError):
            call_command("sync_zrank", INDEX.name)
        assert contents(VideoRank) == {str(first.pk): 102, str(second.pk): 51}
        # Nor does a watcher wait.
        VideoRank.scores.increment(first, 1)
        Video.objects.filter(pk=second.pk).update(views=60)
        stop = Event()

        def report(index: RankIndex, done: Any) -> None:
            if contents(VideoRank)[str(second.pk)] == 60:
                stop.set()

        watch([INDEX], interval=0.02, stop=stop, report=report)
    assert in_step() == {str(first.pk): 103, str(second.pk): 60}


def test_slow_rows_are_written_some_at_a_time() -> None:
    """12 rows of half a second each, which PostgreSQL's statement_timeout of 5 s would cancel."""
    videos = Video.objects.bulk_create(Video(views=n) for n in range(12))
    call_command("sync_zrank", INDEX.name)
    VideoRank.scores.increment(dict.fromkeys(videos, 100))
    with trigger(DELAY[connection.vendor]):
        assert flush(INDEX) == 12
    assert in_step() == {str(video.pk): n + 100 for n, video in enumerate(videos)}


def test_addresses_of_both_versions(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Host, "-load", write_behind="increment")
    addresses = ("10.0.0.1", "2001:db8::1", "10.0.0.2")
    for address in addresses:
        Host.objects.create(address=address, load=1)
    index.scores.increment(dict.fromkeys(addresses, 2))
    assert in_step(index) == dict.fromkeys(addresses, 3)


def test_a_sum_beyond_64_bits_is_refused(
    declare: Callable[..., type[RankIndex]], caplog: pytest.LogCaptureFixture
) -> None:
    index = declare(Video, "-total", write_behind="increment")
    first, second = Video.objects.create(total=1), Video.objects.create(total=1)
    index.scores.increment({first: 5, second: 5})
    Video.objects.filter(pk=first.pk).update(total=2**63 - 3)
    flush(index.instance())
    assert "refuses the change 5" in caplog.text
    assert column(index) == {str(first.pk): 2**63 - 3, str(second.pk): 6}
    Video.objects.filter(pk=first.pk).update(total=7)
    assert in_step(index) == {str(first.pk): 7, str(second.pk): 6}


def test_a_flush_ends_while_scores_keep_changing(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, flushes = PendingStore.settle_flush, []

    def settle_then_change(store: PendingStore, *given: Any) -> bool:
        flushes.append(given)
        assert len(flushes) < 20
        VideoRank.scores.increment({videos[0]: 1, videos[1]: 1})
        return settle(store, *given)

    monkeypatch.setattr(PendingStore, "settle_flush", settle_then_change)
    VideoRank.scores.increment({videos[0]: 1, videos[1]: 1})
    flush(INDEX)
    call_command("sync_zrank", INDEX.name)
    monkeypatch.undo()
    assert set(in_step().values()) == {95 + len(flushes) + 1, 10 + len(flushes) + 1}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="locks no rows")
def test_a_flush_that_two_processes_cut_differently_is_written_once(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read all of a flush; another finds a row locked, and puts its change back."""
    first, second = videos
    VideoRank.scores.increment({first: 7, second: 1})
    take = PendingStore.take_pending

    def take_then_cut(store: PendingStore, *given: Any, **how: Any) -> Any:
        flight = take(store, *given, **how)
        monkeypatch.setattr(PendingStore, "take_pending", take)
        confirm = PendingStore.confirm_flush

        def confirm_and_die(store: PendingStore, *given: Any) -> bool:
            assert confirm(store, *given)
            raise KeyboardInterrupt

        monkeypatch.setattr(PendingStore, "confirm_flush", confirm_and_die)
        with locked(first), pytest.raises(KeyboardInterrupt):
            flush(INDEX, patience=0.0)
        monkeypatch.setattr(PendingStore, "confirm_flush", confirm)
        return flight

    monkeypatch.setattr(PendingStore, "take_pending", take_then_cut)
    flush(INDEX)
    assert in_step() == {str(first.pk): 102, str(second.pk): 11}
