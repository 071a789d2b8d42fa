"""The model and the indexes of ``tests.benchmarks.hold``, and the processes that run beside what it measures.

``python -m tests.benchmarks.beside ask|save|watch``, each until its standard input is closed. ``ask`` prints, as JSON,
what it asked for, when, and how long it waited; ``save`` the number of rows it saved.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import django
from django.conf import settings
from django.db import models
from redis import Redis

from tests.benchmarks.cores import alone_on, used
from tests.benchmarks.pyramid import PLATFORMS, REGIONS
from tests.benchmarks.servers import PATIENT, environment

PAUSE = 0.001
"""Seconds between two questions."""


def declare() -> tuple[Any, list[Any]]:
    """The model, and its indexes: one criterion; and two, with two facets and their composite."""
    from django_zrank import RankIndex
    from django_zrank.registry import registry
    from django_zrank.sync import signal_handlers

    class Held(models.Model):
        points = models.IntegerField()
        joined = models.DateTimeField()
        region = models.CharField(max_length=20)
        platform = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    class Plain(RankIndex):
        name = "plain"
        model = Held
        order = ("-points",)
        band = 20

    class Facets(RankIndex):
        name = "facets"
        model = Held
        order = ("-points", "joined")
        band = 20
        facets = ("region", "platform", ("region", "platform"))

    for index in (Plain, Facets):
        registry.register(index)
        signal_handlers.connect(index.instance())
    return Held, [Plain, Facets]


def start(redis: Redis, *roles: str) -> list[subprocess.Popen[str]]:
    """Start processes, and wait until all are at work."""
    command = [sys.executable, "-m", "tests.benchmarks.beside"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*command, role], env=environment(redis), **pipes) for role in roles]
    for process in processes:
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"not begun: {process.args}")
    return processes


def end(*processes: subprocess.Popen[str]) -> list[Any]:
    """End processes, and return what each has printed."""
    for process in processes:
        assert process.stdin
        process.stdin.close()
        process.stdin = None
    printed = [json.loads(process.communicate()[0]) for process in processes]
    assert not any(process.returncode for process in processes)
    return printed


def ask() -> list[tuple[str, float, float, float]]:
    """PING and ``recommend()``, in turn: when each was asked, how long it waited, and the processor time that the
    server used meanwhile."""
    model, indexes = declare()
    rng, rankings, pks = random.Random(2), [index.ranking for index in indexes], ends(model)
    client = Redis.from_url(settings.CACHES["zrank"]["LOCATION"])
    about: Any = client.info("server")
    server = about["process_id"]
    alone_on(None)
    waits: list[tuple[str, float, float, float]] = []
    questions: list[tuple[str, Callable[[], Any]]] = [
        ("PING", client.ping),
        ("recommend()", lambda: rng.choice(rankings).recommend(rng.randint(*pks))),
    ]
    print("ready", flush=True)
    while not is_over():
        for name, question in questions:
            before, began = used(server), time.monotonic()
            question()
            waits.append((name, began, time.monotonic() - began, used(server) - before))
            time.sleep(PAUSE)
    return waits


def save() -> int:
    """Change rows one by one, by ``save()``: scores, and one in four a region, too."""
    model, _ = declare()
    rng, pks, saved = random.Random(), ends(model), 0
    print("ready", flush=True)
    while not is_over():
        row = model.objects.get(pk=rng.randint(*pks))
        row.points = max(1, row.points + rng.randint(-5, 5))
        if rng.random() < 0.25:
            row.region, row.platform = rng.choice(REGIONS), rng.choice(PLATFORMS)
        row.save()
        saved += 1
    return saved


def keep_watch() -> int:
    """``sync_zrank --watch`` of these indexes. Returns how many marks it has processed."""
    from django_zrank.sync.watch import watch

    _, indexes = declare()
    stop, worked_off = Event(), []
    print("ready", flush=True)
    Thread(target=lambda: (sys.stdin.read(), stop.set())).start()
    watch(
        [index.instance() for index in indexes],
        interval=0.5,
        stop=stop,
        report=lambda index, done: worked_off.append(done.marks),
    )
    return sum(worked_off)


def ends(model: Any) -> tuple[int, int]:
    """The least and the highest primary key; there is none missing in between."""
    found = model.objects.aggregate(models.Min("pk"), models.Max("pk"))
    return found["pk__min"], found["pk__max"]


def is_over() -> bool:
    """True once standard input is closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    django.setup()
    settings.CACHES["zrank"]["OPTIONS"] = PATIENT
    print(json.dumps({"ask": ask, "save": save, "watch": keep_watch}[sys.argv[1]]()))
