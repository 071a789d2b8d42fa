"""Changes of scores that begin in Redis, over a bare ZINCRBY and over ``F()`` and ``save()``; flushes; and sweeps.

``python -m tests.benchmarks.scores [--rows N] [--rounds N] [--clients N] [--sleepers N] [--json FILE]``, on the
database that ``ZRANK_TEST_DATABASE`` names. ``--sleepers``: so many members more, all of which fall asleep and are
removed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import django
from django.db import connection, connections
from django.db.models import F
from django.utils import timezone


def rate_of(clients: int, call: Callable[[], Any], seconds: float = 2.0) -> float:
    """Calls a second of so many processes at once."""
    connections.close_all()
    fork = multiprocessing.get_context("fork")
    counts, barrier = fork.SimpleQueue(), fork.Barrier(clients)

    def work() -> None:
        call()
        barrier.wait()
        done, until = 0, perf_counter() + seconds
        while perf_counter() < until:
            call()
            done += 1
        counts.put(done)

    processes = [fork.Process(target=work) for _ in range(clients)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return sum(counts.get() for _ in processes) / seconds


def sweep_sleepers(client: Any, members: int) -> dict[str, Any]:
    """Let members fall asleep at once, and remove them. Returns how long that took, and the calls of the server that
    took longer than 1 ms."""
    from django_zrank import RankIndex, registry
    from django_zrank.sync import signal_handlers
    from django_zrank.sync.idle import sweep
    from django_zrank.sync.watch import sync
    from tests.testapp.models import Video

    period = timedelta(hours=1)
    declared = {"model": Video, "order": ("-views",), "name": "awake", "idle": ("seen", period)}
    index = registry.register(type("AwakeRank", (RankIndex,), declared)).instance()
    signal_handlers.connect(index)
    began = timezone.now()
    rows = (Video(views=n % 4000, seen=began + timedelta(microseconds=n)) for n in range(members))
    Video.objects.bulk_create(rows, batch_size=2000)
    sync(index)
    # An update would leave marks, by which a drain would remove them, too: so the period ends.
    index.awake = index.awake._replace(period=timedelta(microseconds=1))
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", 10_000)
    client.slowlog_reset()
    start = perf_counter()
    removed = sweep(index)
    seconds = perf_counter() - start
    slow = [entry["duration"] for entry in client.slowlog_get(10_000)]
    longest, above = max(slow, default=1000) / 1000, sum(duration > 5000 for duration in slow)
    rate = removed / seconds
    print(
        f"swept {removed:,} sleepers, {rate:,.0f} a second; longest call {longest:.1f} ms, {above} over 5 ms"
    )
    return {"members": removed, "seconds": seconds, "slow": slow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--sleepers", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank.scripts import INCREMENT_SCORES
    from django_zrank.store import Store
    from django_zrank.sync.drain import drain
    from django_zrank.sync.flush import flush
    from django_zrank.sync.rebuild import rebuild
    from tests.benchmarks.rounds import compare, figures, report, save
    from tests.benchmarks.servers import redis_server
    from tests.testapp.models import Video
    from tests.testapp.zrank import VideoRank

    index, scores = VideoRank.instance(), VideoRank.scores
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, redis_server() as (client, name):
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(Path(folder) / "zrank.sqlite3")
        original = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            Video.objects.bulk_create((Video(views=n % 4000) for n in range(options.rows)), batch_size=500)
            rebuild(index)
            drain(index)
            pks = list(Video.objects.values_list("pk", flat=True))
            same = Store(index.name, index.layout).client  # the app's own connections
            client.zunionstore("bare", [Store(index.name).live.root])
            print(f"{connection.display_name}, {name}, {options.rows:,} members")

            def save_one() -> None:
                video = Video(pk=random.choice(pks), views=F("views") + 1)
                video.save(update_fields=["views"], force_update=True)

            def bare_pipeline() -> None:
                pipeline = same.pipeline(transaction=False)
                for pk in random.sample(pks, 1000):
                    pipeline.zincrby("bare", 1, str(pk))
                pipeline.execute()

            seconds = compare(
                {
                    "ZINCRBY": lambda: same.zincrby("bare", 1, str(random.choice(pks))),
                    "increment()": lambda: scores.increment(random.choice(pks)),
                    "increment() of 1,000": lambda: scores.increment(
                        dict.fromkeys(random.sample(pks, 1000), 1)
                    ),
                    "ZINCRBY, 1,000 in a pipeline": bare_pipeline,
                    "F() and save()": save_one,
                },
                options.rounds,
                limit=20,
            )
            report(seconds, "ZINCRBY")
            measured["calls"] = figures(seconds, "ZINCRBY")
            for clients in sorted({1, options.clients}):
                bare_rate = rate_of(clients, lambda: same.zincrby("bare", 1, str(random.choice(pks))))
                rate = rate_of(clients, lambda: scores.increment(random.choice(pks)))
                print(f"{clients} clients: {rate:,.0f} increments a second, ZINCRBY {bare_rate:,.0f}")
                measured[f"clients_{clients}"] = {"increments": rate, "zincrby": bare_rate}
            many = 1000 / statistics.median(seconds["increment() of 1,000"])
            print(f"increments a second, 1,000 in a call: {many:,.0f}")

            def server_time(command: str, call: Any) -> float:
                client.config_resetstat()
                for _ in range(options.rounds):
                    call()
                stats: Any = client.info("commandstats")
                return float(stats[f"cmdstat_{command}"]["usec_per_call"])

            bare = server_time("zincrby", lambda: same.zincrby("bare", 1, str(random.choice(pks))))
            own = server_time("evalsha", lambda: scores.increment(random.choice(pks)))
            print(
                f"server: ZINCRBY {bare:.2f} µs, {INCREMENT_SCORES.name}.lua {own:.2f} µs, ratio {own / bare:.1f}"
            )
            measured |= {"many": many, "server": {"zincrby": bare, "increment_scores": own}}

            rates = []
            for _ in range(3):
                flush(index)
                drain(index)
                for start in range(0, min(len(pks), 60_000), 1000):
                    scores.increment(dict.fromkeys(pks[start : start + 1000], 1))
                began = perf_counter()
                members = flush(index)
                rates.append(members / (perf_counter() - began))
            print(f"flushed members a second: median {statistics.median(rates):,.0f} of {members:,}")
            measured["flushed"] = rates
            if options.sleepers:
                measured["swept"] = sweep_sleepers(client, options.sleepers)
            if options.json:
                save(options.json, database=connection.display_name, rows=options.rows, **measured)
        finally:
            connection.creation.destroy_test_db(original, verbosity=0)


if __name__ == "__main__":
    main()
