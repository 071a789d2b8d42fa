"""A member that is erased from each index of its model, in whatever order: no key and no row names it afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_zrank.testing import EmbeddedServer
from tests.projects import Project

MODELS = """
from django.db import models
from django.utils import timezone

class Player(models.Model):
    nick = models.CharField(max_length=40, primary_key=True)
    is_active = models.BooleanField(default=True)
    region = models.CharField(max_length=8, default="kanto")
    level = models.IntegerField(default=1)
    likes = models.IntegerField(default=0)
    best = models.IntegerField(default=0)
    seen = models.DateTimeField(default=timezone.now, db_index=True)

class Veteran(Player):
    medals = models.IntegerField(default=0)
"""

INDEXES = """
from datetime import timedelta
from django_zrank import RankIndex, register
from .models import Player, Veteran

class Active(RankIndex):
    band = 1000

    def get_queryset(self):
        return self.model.objects.filter(is_active=True)

@register
class Plain(Active):
    name, model, order, facets = "plain", Player, ("-level", "-likes"), ("region",)

@register
class Likes(Active):
    name, model, order, write_behind = "likes", Player, ("-likes",), "increment"

@register
class Best(Active):
    name, model, order, write_behind, shards = "best", Player, ("-best",), "best", 3

@register
class Awake(Active):
    name, model, order, idle = "awake", Player, ("best",), ("seen", timedelta(days=30))

@register
class Veterans(Active):
    name, model, order = "veterans", Veteran, ("-medals", "-best")
"""

ERASE = '''
import json, os
from datetime import timedelta
from itertools import permutations
import django
django.setup()
import redis
from django.core.management import call_command
from django.db import connection
from players.models import Player, Veteran
from players.zrank import Awake, Best, Likes, Plain, Veterans

INDEXES = Plain, Likes, Best, Awake, Veterans
client = redis.Redis.from_url(os.environ["PROJECT_REDIS"])

def rotations():
    """Orders in which each index comes before each other one, next to it and not, at the beginning and at the end."""
    for way in (INDEXES, INDEXES[::-1]):
        for at in range(len(way)):
            yield way[at:] + way[:at]

def held(key):
    match client.type(key):
        case b"hash":
            return client.hgetall(key)
        case b"zset":
            return client.zrange(key, 0, -1)
        case b"set":
            return client.smembers(key)
    return client.get(key)

def traces(member):
    keys = {key.decode() for key in client.scan_iter(count=1000) if member in f"{key} {held(key)}"}
    rows = set()
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {table}")
            rows.update(table for row in cursor.fetchall() if table.startswith("zrank_") and member in str(row))
    return sorted(keys), sorted(rows)

call_command("migrate", run_syncdb=True, verbosity=0)
for at in range(8):
    Veteran.objects.create(nick=f"other-{at}", level=at)
call_command("rebuild_zrank", verbosity=0)
found, held_before = {}, set()
for way in ("deleted", "left"):
    for at, order in enumerate(permutations(INDEXES) if os.environ.get("EVERY") else rotations()):
        member = f"{way}-{at}"
        Veteran.objects.create(nick=member)
        for index in INDEXES:
            index.group("live").add(member)
            index.ranking.recommend("other-3", 50, remember=timedelta(hours=1))
        Likes.scores.increment(member, 5)
        Best.scores.submit(member, 7)
        Awake.scores.touch(member)
        held_before.update(traces(member)[0])
        if way == "deleted":
            Veteran.objects.get(pk=member).delete()
        else:
            Player.objects.filter(pk=member).update(is_active=False)
            row = Player.objects.get(pk=member)
        for index in order:
            index.erase(member)
        keys, rows = traces(member)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE zrank_batch SET at = '2020-01-01 00:00:00'")
        for index in order:
            index.erase(member)
        later = traces(member)
        wrong = {"keys": keys, "rows": [row for row in rows if row != "zrank_batch"], "later": later}
        if way == "left":
            row.refresh_from_db()
            wrong["scores"] = [one for one in (row.likes, row.best) if one not in (5, 7)]
        if wrong != {"keys": [], "rows": [], "later": ([], [])} | ({"scores": []} if way == "left" else {}):
            found[f"{way}: " + ", ".join(index.name for index in order)] = wrong
kinds = sorted({key.split("}:")[1].partition(":")[0] for key in held_before})
print(json.dumps([kinds, found]))
'''


@pytest.fixture(scope="module")
def redis() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("every", ["", "1"])
def test_no_order_leaves_a_trace_in_another_index(redis: EmbeddedServer, tmp_path: Path, every: str) -> None:
    files = {"players/models.py": MODELS, "players/zrank.py": INDEXES, "erase.py": ERASE}
    project = Project(tmp_path, redis.url, files, live=False)
    (said, *_) = project.run("erase.py", EVERY=every).splitlines()
    kinds, found = json.loads(said)
    assert {"group", "remembered", "recent", "pending", "touched"} <= set(kinds)
    assert found == {}
