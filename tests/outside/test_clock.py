"""Clocks that are wrong for a while: nobody sleeps for good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from django_zrank.testing import EmbeddedServer
from tests.projects import SETTINGS, Project

FILES = {
    "settings.py": f"""{SETTINGS}
from datetime import timedelta
from django.utils import timezone
right = timezone.now
timezone.now = lambda: right() + timedelta(days=int(os.environ.get("AHEAD", 0)))
if "CAPTURE" in os.environ:
    ZRANK = {{"CAPTURE": os.environ["CAPTURE"], "FLUSH_EVERY": 3600.0}}  # only commands sweep
""",
    "players/models.py": """
from django.db import models

class Player(models.Model):
    level = models.IntegerField()
    seen = models.DateTimeField(null=True, db_index=True)
""",
    "players/zrank.py": """
from datetime import timedelta
from django_zrank import RankIndex, register
from .models import Player

@register
class PlayerRank(RankIndex):
    model = Player
    order = ("-level",)
    idle = ("seen", timedelta(days=30))
""",
}

LIVE = """
from datetime import timedelta
from django.core.management import call_command
from django.utils import timezone
from players.models import Player
call_command("migrate", run_syncdb=True, verbosity=0)
now = timezone.now()
Player.objects.bulk_create(Player(level=at, seen=now - timedelta(days=at)) for at in range(1, 41))
call_command("sync_zrank", verbosity=0)
"""

AHEAD = """
def a_save():
    Player.objects.order_by("pk")[2].save()

def saves_that_drain():
    while True:
        Player.objects.order_by("pk")[3].save()
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM zrank_mark")
            if cursor.fetchone()[0] == 0:
                break

def an_update():
    Player.objects.update(level=F("level") + 1)
    call_command("sync_zrank", verbosity=0)

def a_sweep():
    call_command("sync_zrank", verbosity=0)

def a_rebuild():
    call_command("rebuild_zrank", verbosity=0)

def a_repair():
    Player.objects.filter(pk__lt=5).update(level=1)
    call_command("verify_zrank", repair=True, verbosity=0)
"""
"""What may happen while the clock is ahead."""

RUN = """
import json, os
from django.core.management import call_command
from django.db import connection
from django.db.models import F
from players.models import Player
from players.zrank import PlayerRank

def at_right():
    os.environ.pop("AHEAD", None)
    call_command("sync_zrank", verbosity=0)
    return PlayerRank.ranking.count()

wrong = {}
for happen in (a_save, saves_that_drain, an_update, a_sweep, a_rebuild, a_repair):
    at_right()
    os.environ["AHEAD"] = "365"
    happen()
    if (found := at_right()) != 29:
        wrong[happen.__name__] = found
        call_command("rebuild_zrank", verbosity=0)
os.environ["AHEAD"] = "10"
call_command("sync_zrank", verbosity=0)  # and they sleep in time
print(json.dumps([wrong, PlayerRank.ranking.count()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["triggers", "signals"])
def test_members_that_slept_while_the_clock_was_ahead_return(capture: str, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        project = Project(tmp_path, server.url, FILES, live=False)
        project.environment["CAPTURE"] = capture
        project.shell(LIVE)
        wrong, last = json.loads(project.shell(f"{AHEAD}\n{RUN}").splitlines()[-1])
    assert wrong == {}
    assert last == 19


TOUCHED = """
from datetime import timedelta
from django.utils import timezone
from django_redis import get_redis_connection
from players.models import Player
from players.zrank import PlayerRank

player = Player.objects.order_by("-seen")[10]
seen = player.seen
PlayerRank.scores.touch(player)
player.refresh_from_db()
assert player.seen > seen
# As if the server's clock had been a year ahead then.
touched = "zrank:{player}:touched"
redis = get_redis_connection("zrank")
assert redis.zscore(touched, player.pk)
redis.zadd(touched, {player.pk: (timezone.now() + timedelta(days=365)).timestamp() * 1e6})
Player.objects.filter(pk=player.pk).update(seen=seen)
PlayerRank.scores.touch(player)
player.refresh_from_db()
print(player.seen > seen)
"""


def test_a_touch_is_written_after_the_clock_of_redis_was_ahead(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        project = Project(tmp_path, server.url, FILES, live=False)
        project.shell(LIVE)
        assert project.shell(TOUCHED).strip() == "True"
