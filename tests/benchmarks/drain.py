"""The rate at which waiting marks are processed: those of one update() of many rows, that several indexes rank.

``python -m tests.benchmarks.drain [--rows N] [--rounds N] [--indexes N,N,…] [--json FILE]``, on the database
that ``ZRANK_TEST_DATABASE`` names. *Of it* is the share of the time that this process's processor was busy, *of
Redis* that of the server's.
"""

from __future__ import annotations

import statistics
from threading import Event
from time import perf_counter, process_time
from typing import Any

from django.db import connection
from django.db.models import F

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import figures, report_rates, save
from tests.benchmarks.servers import busy, redis_server, tables


def main() -> None:
    options = parse_options(__doc__, rows=100_000, rounds=3, indexes=(1, 5))

    set_up()
    from django_zrank import RankIndex
    from django_zrank.capture.triggers import install
    from django_zrank.models import Mark
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.sync.watch import watch
    from tests.testapp.models import Player

    def index(number: int) -> Any:
        attributes = {"model": Player, "order": ("-level",), "name": f"bench-{number}"}
        return type("BenchRank", (RankIndex,), attributes).instance()

    rates: dict[str, list[float]] = {}
    with redis_server() as (redis, server), tables():
        Player.objects.bulk_create((Player(level=row % 4000) for row in range(options.rows)), batch_size=500)
        print(f"{connection.display_name}, {server}, {options.rows:,} rows, {options.rounds} rounds")
        declared = [index(number) for number in range(max(options.indexes))]
        for count in options.indexes:
            indexes = declared[:count]
            install("default", indexes)
            for each in indexes:
                rebuild(each)
            for number in range(-1, options.rounds):  # the first one to warm up
                Mark.objects.all().delete()
                Player.objects.update(level=F("level") + 1)
                began, cpu, of_redis = perf_counter(), process_time(), busy(redis)
                changes, stop, left = count * options.rows, Event(), set(indexes)

                def report(one: Any, done: Any, left: set[Any] = left, stop: Event = stop) -> None:
                    if not Mark.objects.filter(index=one.name).exists():
                        left.discard(one)
                    if not left:
                        stop.set()

                watch(indexes, interval=0.05, stop=stop, report=report)
                seconds = perf_counter() - began
                if number < 0:
                    continue
                title = f"{count} index" if count == 1 else f"{count} indexes"
                rates.setdefault(title, []).append(changes / seconds)
                print(
                    f"{title}: {changes:,} changes in {seconds:.1f} s, {changes / seconds:,.0f} a second; "
                    f"of it {(process_time() - cpu) / seconds:.2f}, of Redis {(busy(redis) - of_redis) / seconds:.2f}",
                    flush=True,
                )
    print()
    report_rates(rates, next(iter(rates)), "changes")
    medians = {title: statistics.median(each) for title, each in rates.items()}
    save(
        options,
        database=connection.display_name,
        medians=medians,
        rates=figures(rates, next(iter(rates))),
    )


if __name__ == "__main__":
    main()
