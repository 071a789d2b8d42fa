"""Changes of write-behind scores, over a bare ZINCRBY and over ``F()`` and ``save()``; flushes; and sweeps.

``python -m tests.benchmarks.scores [--rows N] [--rounds N] [--clients N] [--sleepers N] [--json FILE]``, on the
database that ``ZRANK_TEST_DATABASE`` names. ``--sleepers``: so many members more, all of which fall asleep and are
removed, and wake.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from datetime import timedelta
from time import perf_counter, process_time
from typing import Any

from django.db import connection, connections, transaction
from django.db.models import F
from django.utils import timezone

from django_zrank.iteration import batched
from tests.benchmarks.cores import calls_timed
from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, count_calls, figures, percentiles, report, report_rates, save
from tests.benchmarks.servers import busy, redis_server, tables

SECONDS = 2.0
"""The time for which several clients change scores."""


def rate_of(clients: int, call: Callable[[], Any]) -> float:
    """Return the calls a second of several clients, with connections of their own to the database."""
    connections.close_all()
    return count_calls(call, clients, SECONDS) / SECONDS


def flush_rates(pks: list[Any]) -> dict[str, list[float]]:
    """Members a second that are flushed, and that the statement of a flush changes by itself, interleaved."""
    from django_zrank.sync.drain import drain
    from django_zrank.write_behind.flush import BATCH_SIZE, flush, merge_changes
    from tests.testapp.zrank import VideoRank

    index, scores = VideoRank.instance(), VideoRank.scores
    rates: dict[str, list[float]] = {"its statement alone": [], "flush": []}
    for _ in range(3):
        began = perf_counter()
        for batch in batched(map(str, pks), BATCH_SIZE):
            with transaction.atomic():
                merge_changes(index, index.column, dict.fromkeys(batch, 1))
        rates["its statement alone"].append(len(pks) / (perf_counter() - began))
        drain(index)
        random.shuffle(pks)
        for batch in batched(pks, scores.limit):
            scores.increment(dict.fromkeys(batch, 1))
        began, own = perf_counter(), process_time()
        members = flush(index)
        rates["flush"].append(members / (perf_counter() - began))
        own = process_time() - own
        drain(index)
    report_rates(rates, "its statement alone", "members")
    print(f"processor time of a member that is flushed: {1e6 * own / members:.1f} µs here")
    return rates


def sweep_sleepers(client: Any, members: int) -> dict[str, Any]:
    """Let members fall asleep at once, and remove them; then let all wake. Returns the seconds that it took, and the
    milliseconds that its calls took of the server's processor."""
    from django_zrank import RankIndex, registry
    from django_zrank.sync import signal_handlers
    from django_zrank.sync.drain import drain
    from django_zrank.sync.watch import sync
    from django_zrank.windows.sweep import sweep
    from tests.parts.windows.clock import database_clock
    from tests.testapp.models import Video

    period = timedelta(hours=1)
    declared = {"model": Video, "order": ("-views",), "name": "awake", "idle": ("seen", period)}
    index = registry.register(type("AwakeRank", (RankIndex,), declared)).instance()
    signal_handlers.connect(index)
    began = timezone.now()
    rows = (Video(views=n % 4000, seen=began + timedelta(microseconds=n)) for n in range(members))
    Video.objects.bulk_create(rows, batch_size=2000)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
    sync(index)
    # An update would leave marks, by which a drain would remove them, too: so the period ends.
    with database_clock(lambda: timezone.now() + 2 * period):
        measured = {"asleep": timed(client, "removed", lambda: (sweep(index), drain(index))[0])}
    Video.objects.filter(seen__gte=began).update(seen=timezone.now())
    measured["woken"] = timed(client, "woken", lambda: drain(index))
    return measured


def timed(client: Any, what: str, work: Callable[[], int]) -> dict[str, Any]:
    """Measure one operation on many members."""
    with calls_timed(client.info("server")["process_id"]) as taken:
        own, server, start = process_time(), busy(client), perf_counter()
        members = work()
        seconds, own, server = perf_counter() - start, process_time() - own, busy(client) - server
    found = {"members": members, "seconds": seconds, "own": own, "server": server}
    found |= percentiles([1000 * each for each in taken])
    print(
        f"{members:,} members {what}, {members / seconds:,.0f} a second; processor time of a member: "
        f"{1e6 * own / members:.1f} µs here, {1e6 * server / members:.1f} µs of the server; of {len(taken):,} calls, "
        f"in ms: p50 {found['p50']:.1f}, p99 {found['p99']:.1f}, longest {found['max']:.1f}",
        flush=True,
    )
    return found


def main() -> None:
    options = parse_options(__doc__, rows=100_000, rounds=1000, clients=8, sleepers=0)

    set_up()
    from django_zrank.redis.scripts import INCREMENT_SCORES
    from django_zrank.store import Store
    from django_zrank.sync.drain import drain
    from django_zrank.sync.rebuild import rebuild
    from tests.testapp.models import Video
    from tests.testapp.zrank import VideoRank

    index, scores = VideoRank.instance(), VideoRank.scores
    measured: dict[str, Any] = {}
    with redis_server() as (client, name), tables():
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
            for pk in random.sample(pks, scores.limit):
                pipeline.zincrby("bare", 1, str(pk))
            pipeline.execute()

        seconds = compare(
            {
                "ZINCRBY": lambda: same.zincrby("bare", 1, str(random.choice(pks))),
                "increment()": lambda: scores.increment(random.choice(pks)),
                f"increment() of {scores.limit}": lambda: scores.increment(
                    dict.fromkeys(random.sample(pks, scores.limit), 1)
                ),
                f"ZINCRBY, {scores.limit} in a pipeline": bare_pipeline,
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
        many = scores.limit / statistics.median(seconds[f"increment() of {scores.limit}"])
        print(f"increments a second, {scores.limit} in a call: {many:,.0f}")

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

        measured["flushed"] = flush_rates(pks[:60_000])
        if options.sleepers:
            measured["swept"] = sweep_sleepers(client, options.sleepers)
        save(options, database=connection.display_name, **measured)


if __name__ == "__main__":
    main()
