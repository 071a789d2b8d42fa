"""What a worker and a web process log of an outage, as their operator reads it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_zrank.embedded import EmbeddedServer
from tests.projects import SETTINGS, Project
from tests.servers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.part("shards")]

NAMES = ("one", "two", "three")

INDEX = """
from django_zrank import RankIndex, register
from .models import Player
"""

DECLARED = """
@register
class Rank{name}(RankIndex):
    model = Player
    name = "{name}"
    order = ("-level",)
    shards = {shards}
"""

LOGGING = """
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"django_zrank": {"handlers": ["stderr"], "level": "INFO"}},
}
"""

WEB = """
import django; django.setup()
import sys
from select import select
from players.models import Player
player = Player.objects.first()
while not select([sys.stdin], [], [], 0.1)[0]:
    player.level += 1
    player.save()
"""

AWAY = 8.0
"""Seconds of the outage: five attempts of the worker, and two of the web process, which makes 80 saves."""


@pytest.mark.parametrize("shards", [1, 4])
def test_each_process_says_each_thing_once(tmp_path: Path, shards: int) -> None:
    server = EmbeddedServer()
    server.start()
    indexes = INDEX + "".join(DECLARED.format(name=name, shards=shards) for name in NAMES)
    project = Project(tmp_path, server.url, {"settings.py": SETTINGS + LOGGING, "players/zrank.py": indexes})
    logs = {name: tmp_path / f"{name}.log" for name in ("worker", "web")}
    commands = {"worker": ["-m", "django", "sync_zrank", "--watch"], "web": ["-c", WEB]}
    processes = {}
    for name, log in logs.items():
        with log.open("w") as stderr:
            processes[name] = subprocess.Popen(
                [sys.executable, *commands[name]],
                cwd=tmp_path,
                env={**project.environment, "PYTHONWARNINGS": "default"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
    try:
        time.sleep(3)  # both run, and have nothing to say
        assert all(not log.read_text() for log in logs.values())
        server.kill()
        wait_for(lambda: all(log.read_text() for log in logs.values()), 30)
        time.sleep(AWAY)
        server.start()  # empty
        wait_for(lambda: logs["worker"].read_text().count("up to date again") == len(NAMES), 60)
        wait_for(lambda: "again" in logs["web"].read_text(), 60)
    finally:
        for process in processes.values():
            process.terminate()
            process.communicate()
        server.stop()
    for name, log in logs.items():
        lines = log.read_text().splitlines()
        sys.stdout.write(f"{name}, {shards} shards: {len(lines)} lines\n" + "\n".join([*lines, ""]))
        assert len(lines) == len(set(lines)), name
    # Each index: unreachable, emptied, up to date again.
    assert len(logs["worker"].read_text().splitlines()) == 3 * len(NAMES)
    # Suspended and resumed; and each index that the worker hasn't rebuilt yet.
    assert len(logs["web"].read_text().splitlines()) <= 2 + len(NAMES)
