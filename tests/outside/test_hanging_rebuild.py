"""A rebuild whose database connection hangs: it is as good as killed, though its process lives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from redis import Redis

from django_zrank.embedded import EmbeddedServer
from tests.projects import INDEX, Project

pytestmark = pytest.mark.slow

HANGING = """
import sys, threading, time

FAST = 600  # ten minutes are a second, for this process
now, wait = time.monotonic, threading.Event.wait
time.monotonic = lambda: FAST * now()
threading.Event.wait = lambda self, timeout=None: wait(self, timeout and timeout / FAST)

import django
django.setup()
from django.core.management import call_command
from django.db import connection

def hang(execute, sql, *args):
    if sql.startswith("SELECT") and "players_player" in sql and "COUNT" not in sql:
        print("hangs", flush=True)
        sys.stdin.read()
    return execute(sql, *args)

with connection.execute_wrapper(hang):
    call_command("rebuild_zrank")
"""

TAKE_OVER = """
from django.core.management import call_command
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute('INSERT INTO zrank_mark ("index") VALUES (\\'player\\')')  # as of a table that was truncated
call_command("sync_zrank")
from players.zrank import PlayerRank
print(PlayerRank.ranking.count())
"""


FLUSH = """
from django_zrank.write_behind.flush import flush
from players.models import Player
from players.zrank import PlayerRank
row = Player.objects.order_by("level").first()
for _ in range(80):  # beside a rebuild that goes on, 64 are made
    score = PlayerRank.scores.increment(row)
    flush(PlayerRank.instance())
row.refresh_from_db()
print(score, row.level)
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Project, Redis]]:
    files = {"players/zrank.py": f'{INDEX}    write_behind = "increment"\n'}
    with EmbeddedServer() as server, Redis.from_url(server.url, decode_responses=True) as client:
        yield Project(tmp_path, server.url, files), client


@pytest.fixture
def meta(site: tuple[Project, Redis]) -> Iterator[str]:
    """The key of an index whose rebuild hangs, and has sent no heartbeat for a while."""
    project, client = site
    with subprocess.Popen(
        [sys.executable, "-c", HANGING],
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while "hangs" not in process.stdout.readline():  # type: ignore[union-attr]
                assert process.poll() is None
            (meta,) = (key for key in client.scan_iter(_type="hash") if client.hexists(key, "building"))
            deadline, silent = monotonic() + 20, 0
            while silent < 3:
                assert monotonic() < deadline, "its heartbeats go on"
                client.hset(meta, "heartbeat", 1)  # time passes for Redis, too
                sleep(0.2)
                silent = silent + 1 if client.hget(meta, "heartbeat") == "1" else 0
            yield meta
        finally:
            process.kill()


def test_others_take_over(site: tuple[Project, Redis], meta: str) -> None:
    project, client = site
    assert project.shell(TAKE_OVER).split()[-1] == "30"
    assert not client.hexists(meta, "building")


@pytest.mark.part("write_behind")
@pytest.mark.usefixtures("meta")
def test_flushes_go_on(site: tuple[Project, Redis]) -> None:
    project, _ = site
    assert project.shell(FLUSH).split()[-2:] == ["80", "80"]
