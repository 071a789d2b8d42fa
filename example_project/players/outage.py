"""The outage that the page shows: Redis is killed, saves go on, marks wait, and the mirror is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep

from django.db import transaction

from arena.stage import stage
from django_zrank import IndexUnavailable
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.health import Status
from django_zrank.sync.verify import verify

from .models import Player
from .zrank import PlayerRank

SAVES = 100
PATIENCE = 20.0
"""Seconds that the page waits for the repair."""


@dataclass(frozen=True)
class Outage:
    """The server, as the page shows it."""

    is_ours: bool
    """False if another command runs the server: this one can't kill it then."""

    is_up: bool
    waiting: int
    status: Status | None

    @property
    def is_healthy(self) -> bool:
        return self.status is Status.HEALTHY

    @property
    def goes_on(self) -> bool:
        return not self.is_up or self.waiting > 0 or not self.is_healthy


def look() -> Outage:
    gauges = read_gauges(PlayerRank.instance())
    return Outage(stage.server is not None, stage.is_up, gauges.waiting, gauges.status)


def kill() -> str:
    stage.kill()
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
    """Start Redis, wait for the watcher to repair the index and to drain, and verify it."""
    began = monotonic()
    stage.start()
    index = PlayerRank.instance()
    stage.watch()
    while True:
        gauges = read_gauges(index)
        if gauges.status is Status.HEALTHY and not gauges.waiting:
            break
        if monotonic() > began + PATIENCE:
            return f"Redis is up; {gauges.waiting:,} marks are still waiting."
        sleep(0.02)
    took = monotonic() - began
    try:
        report = verify(index)
    except IndexUnavailable as error:
        return str(error)
    right = "no difference" if report.ok else f"{report.drift} differences"
    return f"Recovered in {took:.1f} s. Verified: {report.rows:,} rows, {report.members:,} members, {right}."
