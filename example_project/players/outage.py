"""The outage that the page shows: Redis is killed, saves go on, marks wait, and the mirror is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic, sleep

from django.db import connections, transaction

from arena.stage import stage
from django_zrank import IndexUnavailable
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.health import Status
from django_zrank.sync.verify import verify

from .models import Player
from .zrank import PlayerRank

SAVES = 100
PATIENCE = 60.0
"""Seconds that a recovery is followed."""


@dataclass(frozen=True)
class Outage:
    """The server, as the page shows it."""

    is_ours: bool
    """False if another command runs the server: this one can't kill it then."""

    is_up: bool
    waiting: int
    status: Status | None

    recovery: str = ""
    """What the last start has led to so far."""

    is_recovering: bool = False

    @property
    def is_healthy(self) -> bool:
        return self.status is Status.HEALTHY

    @property
    def goes_on(self) -> bool:
        return not self.is_up or self.is_recovering or self.waiting > 0 or not self.is_healthy

    @property
    def light(self) -> str:
        if not self.is_up:
            return "down"
        return "up" if self.is_healthy and not self.waiting else "busy"


class Recovery:
    """What happens after a start, followed in a thread: the watcher repairs the index and drains, then every row is
    verified."""

    def __init__(self) -> None:
        self.said = ""
        self._runs: Thread | None = None
        self._lock = Lock()

    @property
    def is_running(self) -> bool:
        return self._runs is not None and self._runs.is_alive()

    def begin(self) -> None:
        with self._lock:  # two clicks start one
            if not self.is_running:
                self.said = "Applying what Redis has missed …"
                self._runs = Thread(target=self._run, name="recovery", daemon=True)
                self._runs.start()

    def forget(self) -> None:
        self.said = ""

    def _run(self) -> None:
        try:
            self._follow(PlayerRank.instance())
        except IndexUnavailable as error:
            self.said = str(error)
        finally:
            connections.close_all()

    def _follow(self, index: PlayerRank) -> None:
        began = monotonic()
        stage.watch()
        while True:
            gauges = read_gauges(index)
            if gauges.status is Status.HEALTHY and not gauges.waiting:
                break
            if monotonic() > began + PATIENCE:
                self.said = f"Not recovered after {PATIENCE:.0f} s."
                return
            sleep(0.05)
        told = f"Recovered in {monotonic() - began:.1f} s."
        total, done = index.get_ranked().count(), 0

        def progress(rows: int) -> None:
            nonlocal done
            done += rows
            self.said = f"{told} Verifying: {done:,} of {total:,} rows …"

        progress(0)
        report = verify(index, progress=progress)
        right = "no difference" if report.ok else f"{report.drift:,} differences"
        self.said = f"{told} Verified: {report.rows:,} rows, {report.members:,} members, {right}."


recovery = Recovery()


def look() -> Outage:
    gauges = read_gauges(PlayerRank.instance())
    return Outage(
        stage.server is not None,
        stage.is_up,
        gauges.waiting,
        gauges.status,
        recovery.said,
        recovery.is_running,
    )


def kill() -> str:
    stage.kill()
    recovery.forget()
    return "Redis was killed before it could save anything. Save some players: the database carries on."


def save_some() -> str:
    """Make a hundred ordinary saves, one transaction each."""
    began = monotonic()
    for player in Player.objects.filter(is_active=True).order_by("?")[:SAVES]:
        with transaction.atomic():
            player.level += 1
            player.save(update_fields=["level"])
    return f"{SAVES} players gained a level: {SAVES} saves in {monotonic() - began:.1f} s, none failed."


def start() -> str:
    """Start Redis, and the recovery, which the page shows."""
    stage.start()
    recovery.begin()
    return "Redis was started."
