"""Jobs that were requested in the admin, and the watcher that carries them out."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.db.models import F
from django.db.models.functions import Now

from django_zrank.capture.triggers import install
from django_zrank.jobs import running as jobs
from django_zrank.jobs.models import Job
from django_zrank.jobs.running import LEASE, jobs_of, request_job, running_jobs, take
from django_zrank.sync.health import Status, examine
from django_zrank.sync.rebuild import rebuild
from tests.servers import wait_for
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = PlayerAscending.instance()
NAMES = [INDEX.name]


@pytest.fixture
def carrying_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], threading.Event]]:
    """Starts to run jobs beside the test. Returns the event that ends it."""
    monkeypatch.setattr(jobs, "_LOOK", 0.02)
    monkeypatch.setattr(jobs, "_PULSE", 0.02)
    stop, blocks = threading.Event(), []

    def start() -> threading.Event:
        block = running_jobs([INDEX], stop)
        block.__enter__()
        blocks.append(block)
        return stop

    yield start
    for block in blocks:
        block.__exit__(None, None, None)


def finished(job: Job) -> Job:
    """The job when it is finished."""
    wait_for(lambda: not jobs_of(INDEX).filter(pk=job.pk, is_open=True).exists())
    return jobs_of(INDEX).get(pk=job.pk)


def test_a_rebuild(carrying_out: Callable[..., Any], zrank: Any) -> None:
    zrank.flushall()
    Player.objects.bulk_create(Player(level=level) for level in range(50))
    job, is_new = request_job(INDEX, "rebuild", "ann")
    assert is_new
    carrying_out()
    job = finished(job)
    assert (job.ok, job.outcome, job.done, job.total) == (True, "50 members ranked.", 50, 50)
    assert_mirrors(PlayerAscending)


def test_a_verification(carrying_out: Callable[..., Any], zrank: Any) -> None:
    Player.objects.bulk_create(Player(level=level) for level in range(50))
    rebuild(INDEX)
    carrying_out()
    job = finished(request_job(INDEX, "verify", "ann")[0])
    assert (job.ok, job.outcome) == (True, "50 rows, 50 members: no difference.")
    zrank.zadd(INDEX.ranking.store.live.root, {"999": 1})
    job = finished(request_job(INDEX, "verify", "ann")[0])
    assert (job.ok, job.outcome) == (False, "50 rows, 51 members: 1 extra.")


def test_a_failure_is_told(carrying_out: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(INDEX), "get_queryset", lambda self: 1 / 0)
    carrying_out()
    job = finished(request_job(INDEX, "rebuild", "ann")[0])
    assert (job.ok, job.outcome) == (False, "division by zero")


def test_of_many_requests_one_is_open() -> None:
    def request(user: str) -> bool:
        try:
            return request_job(INDEX, "rebuild", user)[1]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(request, map(str, range(16)))) == 1
    assert request_job(INDEX, "verify", "ann")[1]
    assert jobs_of(INDEX).count() == 2


def test_of_two_watchers_that_see_a_job_one_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request_job(INDEX, "rebuild", "ann")
    both = threading.Barrier(2, timeout=20)

    def when_both_have_seen_it(name: str) -> F:
        both.wait()
        return F(name)

    monkeypatch.setattr(jobs, "F", when_both_have_seen_it)

    def try_it(runner: str) -> bool:
        try:
            return take("default", NAMES, runner) is not None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(try_it, ["first", "second"])) == 1


def test_jobs_of_other_indexes_are_left_to_others() -> None:
    request_job(INDEX, "rebuild", "ann")
    assert take("default", ["player"], "me") is None


def test_a_job_whose_runner_is_silent_is_taken_up_again() -> None:
    job, _ = request_job(INDEX, "rebuild", "ann")
    assert take("default", NAMES, "first") is not None
    assert take("default", NAMES, "second") is None
    for runner in ("second", "third"):
        Job.objects.filter(pk=job.pk).update(heartbeat_at=Now() - 2 * LEASE)
        taken = take("default", NAMES, runner)
        assert taken is not None
        assert taken.runner == runner
    # A job whose every runner dies is given up.
    Job.objects.filter(pk=job.pk).update(heartbeat_at=Now() - 2 * LEASE)
    assert take("default", NAMES, "fourth") is None
    assert finished(job).outcome == "Given up: 3 processes took it, and none finished it."


def test_a_runner_whose_job_was_taken_gives_way(
    carrying_out: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, proceed = threading.Event(), threading.Event()

    def slow(index: Any, progress: Callable[[int], None], **options: Any) -> int:
        entered.set()
        assert proceed.wait(20)
        for _ in iter(lambda: jobs_of(INDEX).filter(runner="other", done=0).exists(), False):
            progress(0)  # until the pulse has noticed
        return 0

    monkeypatch.setattr(jobs, "rebuild", slow)
    job, _ = request_job(INDEX, "rebuild", "ann")
    stop = carrying_out()
    assert entered.wait(20)
    Job.objects.filter(pk=job.pk).update(runner="other", heartbeat_at=Now())
    proceed.set()
    wait_for(lambda: not any(thread.name == "zrank-job-pulse" for thread in threading.enumerate()))
    stop.set()
    job.refresh_from_db()
    assert (job.runner, job.is_open, job.outcome) == ("other", True, "")


def test_a_job_whose_rebuild_hangs_sends_no_heartbeats(
    carrying_out: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = threading.Event()
    monkeypatch.setattr(jobs, "_SILENCE", 0.2)
    monkeypatch.setattr(jobs, "rebuild", lambda *args, **options: int(proceed.wait(20)))
    job, _ = request_job(INDEX, "rebuild", "ann")
    carrying_out()

    def is_silent() -> bool:
        jobs_of(INDEX).filter(pk=job.pk).exclude(runner="").update(heartbeat_at=Now() - 2 * LEASE)
        time.sleep(0.2)
        return take("default", NAMES, "other") is not None

    try:
        wait_for(is_silent)
    finally:
        proceed.set()
    job.refresh_from_db()
    assert (job.runner, job.attempts) == ("other", 2)


def test_an_error_of_a_driver_s_own_does_not_end_the_thread(
    carrying_out: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def refuse(*args: Any) -> Any:
        seen.append(args)
        if len(seen) == 1:
            raise SystemError("the driver is confused")
        return take(*args)

    monkeypatch.setattr(jobs, "take", refuse)
    monkeypatch.setattr(jobs, "_LONGEST_PAUSE", 0.02)
    job, _ = request_job(INDEX, "rebuild", "ann")
    carrying_out()
    assert finished(job).ok


def test_a_stop_while_rows_are_counted_hands_the_job_back_at_once(
    carrying_out: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be killed before the count returns. Three roll-outs would have given the job up."""
    entered, proceed = threading.Event(), threading.Event()

    def count(index: Any) -> int:
        entered.set()
        assert proceed.wait(20)
        return 0

    monkeypatch.setattr(jobs, "count_rows", count)
    monkeypatch.setattr(jobs, "rebuild", lambda *args, **options: pytest.fail("it was to stop"))
    job, _ = request_job(INDEX, "rebuild", "ann")
    stop = carrying_out()
    assert entered.wait(20)
    stop.set()
    try:
        wait_for(lambda: jobs_of(INDEX).filter(pk=job.pk, is_open=True, runner="", attempts=0).exists())
    finally:
        proceed.set()
    wait_for(lambda: not any(thread.name == "zrank-jobs" for thread in threading.enumerate()))
    job.refresh_from_db()
    assert (job.is_open, job.runner, job.attempts) == (True, "", 0)


@pytest.mark.slow
def test_a_watcher_that_is_told_to_stop_hands_its_job_back() -> None:
    Player.objects.bulk_create(Player(level=level) for level in range(4001))
    job, _ = request_job(INDEX, "rebuild", "ann")
    with manage("sync_zrank", "--watch", "ascending", pause=True) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        wait_for(lambda: jobs_of(INDEX).exclude(runner="").exists())
        assert "loaded\n" in iter(watcher.stdout.readline, "")
        watcher.send_signal(signal.SIGTERM)
        # A signal that comes just before the main thread blocks is handled when that wakes: here, by a second one.
        again = threading.Timer(2, watcher.send_signal, [signal.SIGTERM])
        again.start()
        assert "stopping\n" in iter(watcher.stdout.readline, "")  # before it may go on
        again.cancel()
        watcher.stdin.write("\n" * 9)
        watcher.stdin.close()
        assert watcher.wait(20) == 0
    job.refresh_from_db()
    assert (job.is_open, job.runner, job.attempts) == (True, "", 0)


@pytest.mark.slow
def test_a_watcher_that_is_killed_leaves_its_job_to_the_next(carrying_out: Callable[..., Any]) -> None:
    Player.objects.bulk_create(Player(level=level) for level in range(4001))
    job, _ = request_job(INDEX, "rebuild", "ann")
    with manage("sync_zrank", "--watch", "ascending", pause=True) as watcher:
        wait_for(lambda: jobs_of(INDEX).filter(heartbeat_at__isnull=False, total=4001).exists())
        watcher.kill()
    job.refresh_from_db()
    assert job.is_open
    Job.objects.filter(pk=job.pk).update(heartbeat_at=Now() - 2 * LEASE)
    carrying_out()
    job = finished(job)
    assert (job.ok, job.attempts, job.outcome) == (True, 2, "4,001 members ranked.")
    assert_mirrors(PlayerAscending)


def test_old_jobs_are_forgotten() -> None:
    Job.objects.bulk_create(
        Job(index=INDEX.name, kind="verify", is_open=None, requested_by=str(at)) for at in range(30)
    )
    request_job(INDEX, "verify", "ann")
    assert jobs_of(INDEX).filter(is_open=None).count() == 20
    assert jobs_of(INDEX).last().requested_by == "10"


@pytest.mark.part("dense")
def test_a_worker_of_another_release_takes_no_index_by_it(
    carrying_out: Callable[..., Any], zrank: Any
) -> None:
    """The release whose build is live has migrated last. The one whose worker carries out the job hasn't."""
    newer = type("Newer", (PlayerAscending,), {"ranking_method": "dense"}).instance()
    try:
        install("default", [newer])
        rebuild(newer)
        job, _ = request_job(INDEX, "rebuild", "ann")
        stop = carrying_out()
        done = finished(job)
        stop.set()
        assert not done.ok
        assert "its build belongs to another release" in done.outcome
        assert examine(newer) is Status.HEALTHY
    finally:
        install("default", [INDEX])
