"""Jobs: verifications and rebuilds that were requested elsewhere, carried out by ``sync_zrank --watch``.

A job is taken by one conditional UPDATE, and kept by heartbeats: if a process is killed, the next one takes it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from threading import Event
from time import monotonic
from typing import Final
from uuid import uuid4

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.template.defaultfilters import pluralize

from ..declaration import Index
from ..store import Store
from ..sync.health import Status
from ..sync.rebuild import count_rows, rebuild, running
from ..sync.verify import Report, verify
from ..sync.watch import disconnect
from .models import Job

logger = logging.getLogger("django_zrank.sync")

LEASE: Final = timedelta(seconds=20)
"""The time without a heartbeat after which another process may take a job."""

_PULSE: Final = 1.0
"""Seconds between two heartbeats."""

_SILENCE: Final = 2 * Store.LEASE
"""Seconds without progress after which there are no more heartbeats. By then, a rebuild whose database connection hangs
counts as killed."""

_LOOK: Final = 1.0
"""Seconds between two polls."""

_LONGEST_PAUSE: Final = 30.0

_ATTEMPTS: Final = 3
"""The most attempts at a job: one that kills every process that takes it is given up."""

_KEPT: Final = 20
"""Finished jobs of an index that are kept."""


def jobs_of(index: Index) -> QuerySet[Job]:
    """Return the jobs of ``index``, the newest first."""
    return Job.objects.using(index.get_using()).filter(index=index.name).order_by("-id")


def request_job(index: Index, kind: str, user: str) -> tuple[Job, bool]:
    """Return the open job of this kind, and True if it is new."""
    finished = jobs_of(index).filter(is_open=None).values_list("id", flat=True)
    jobs_of(index).filter(id__in=list(finished[_KEPT : _KEPT + 100])).delete()
    return jobs_of(index).get_or_create(
        index=index.name, kind=kind, is_open=True, defaults={"requested_by": user[:255]}
    )


def running_jobs(indexes: Sequence[Index], stop: Event) -> AbstractContextManager[None]:
    """Carry out the jobs of ``indexes``, one after the other, in a thread, until the block ends or ``stop`` is set."""
    return running("zrank-jobs", partial(_run, indexes), stop)


def _run(indexes: Sequence[Index], stop: Event) -> None:
    runner, pause = uuid4().hex, _LOOK
    databases: dict[str, dict[str, Index]] = defaultdict(dict)
    for index in indexes:
        databases[index.get_using()][index.name] = index
    while not stop.wait(pause):
        pause = _LOOK
        for using, named in databases.items():
            try:
                while not stop.is_set() and (job := take(using, list(named), runner)):
                    _carry_out(named[job.index], job, stop)
            except Exception as error:  # noqa: BLE001 - as in watch(): no error may end this
                pause = _LONGEST_PAUSE
                logger.warning(
                    "Jobs in the database %r can't be run; the next attempt is in %g s. %s",
                    using,
                    pause,
                    error,
                )
                disconnect(using)


def take(using: str, names: Sequence[str], runner: str) -> Job | None:
    """Take the oldest job that waits, or whose runner sends no heartbeat; None if there is none."""
    free = Job.objects.using(using).filter(index__in=names, is_open=True)
    free = free.filter(Q(runner="") | Q(heartbeat_at__lt=Now() - LEASE))
    taken = {"runner": runner, "heartbeat_at": Now(), "attempts": F("attempts") + 1, "done": 0, "total": None}
    for job in free.order_by("id"):
        if free.filter(pk=job.pk).update(**taken):
            job.refresh_from_db(using=using)
            if job.attempts <= _ATTEMPTS:
                return job
            _finish(job, ok=False, outcome=f"Given up: {_ATTEMPTS} processes took it, and none finished it.")
    return None


class _Stopped(Exception):
    """The process ends, or another one has taken the job."""


def _carry_out(index: Index, job: Job, stop: Event) -> None:
    logger.info("%s", job)
    progress = _Progress(job, stop)
    try:
        with running("zrank-job-pulse", progress.show, Event()):
            rows = count_rows(index)
            progress.add(0)  # it may have taken long
            progress.total = rows
            if job.kind == Job.Kind.REBUILD:
                members = rebuild(index, progress=progress.add, takes_over=False)
                ok, outcome = True, f"{members:,} member{pluralize(members)} ranked."
            else:
                report = verify(index, progress=progress.add)
                ok, outcome = report.ok, _summary(report)
    except _Stopped:
        _hand_back(job)
    except Exception as error:
        logger.exception("%s: failed", job)
        _finish(job, ok=False, outcome=str(error) or type(error).__name__)
    else:
        _finish(job, ok=ok, outcome=outcome, done=progress.done, total=progress.done)


def _summary(report: Report) -> str:
    if not report.compared:
        return f"Not compared: {report.status.value}."
    found = [f"{drift.count:,} {kind}" for kind, drift in report.drifts.items() if drift.count]
    if report.unsettled:
        found.append(
            f"{report.unsettled:,} changed whenever {pluralize(report.unsettled, 'it was,they were')} compared"
        )
    if report.status is not Status.HEALTHY:
        found.append(report.status.value)
    if not report.capture.works:
        found.append(report.capture.error or "triggers are missing")
    difference = "; ".join(found) or "no difference"
    rows, members = report.rows, report.members
    return f"{rows:,} row{pluralize(rows)}, {members:,} member{pluralize(members)}: {difference}."


def _mine(job: Job) -> QuerySet[Job]:
    return Job.objects.using(job._state.db).filter(pk=job.pk, runner=job.runner, is_open=True)


def _hand_back(job: Job) -> None:
    """Let the next process take the job at once, unless it has. An orderly stop doesn't count as an attempt."""
    _mine(job).update(runner="", heartbeat_at=None, attempts=F("attempts") - 1)


def _finish(job: Job, **result: object) -> None:
    _mine(job).update(is_open=None, finished_at=Now(), **result)


class _Progress:
    """Counts rows, and writes the count once a second as a heartbeat.

    It has a thread of its own, because a query may take long to return its first row, and MySQL's connection can't be
    used while rows come from it. For the same reason this thread hands the job back when the process ends.
    """

    def __init__(self, job: Job, stop: Event) -> None:
        self.job, self.stop = job, stop
        self.done, self.at = 0, monotonic()
        self.total: int | None = None
        self.is_mine = True

    def add(self, rows: int) -> None:
        self.done, self.at = self.done + rows, monotonic()
        if self.stop.is_set() or not self.is_mine:
            raise _Stopped

    def show(self, ended: Event) -> None:
        while not ended.wait(_PULSE):
            try:
                if self.stop.is_set():
                    _hand_back(self.job)
                    break
                if monotonic() > self.at + _SILENCE:
                    continue
                kept = _mine(self.job).update(heartbeat_at=Now(), done=self.done, total=self.total)
                self.is_mine = bool(kept)
            except Exception as error:  # noqa: BLE001 - without a heartbeat, another process takes the job
                logger.debug("%s: no heartbeat. %s", self.job, error)
                disconnect(str(self.job._state.db))
