"""Reads of an index with shards over reads of the same index without: time of the servers, and latency of a call.

``python -m tests.benchmarks.shards [--members N] [--shards 1,3,16,64] [--rounds N] [--json FILE]``

All shards are on one server: its time is the sum of what several would take, and latency gains nothing from
parallelism.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import django
from redis import Redis


def spent(client: Redis) -> float:
    """Microseconds that the server has spent on commands of indexes."""
    found: Any = client.info("commandstats")
    names = ("evalsha", "zrevrank")
    return float(sum(found.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--shards", default="1,3,16,64", help="Numbers of shards, beside none.")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank import RankIndex
    from tests.benchmarks import pyramid
    from tests.benchmarks.rounds import save
    from tests.benchmarks.servers import redis_server
    from tests.populations import fill
    from tests.sharded import sharded
    from tests.testapp.models import Player

    class Whole(RankIndex):
        model = Player
        name = "whole"
        order = ("-level",)
        band = 10

    class Part(Whole):
        name = "part"

    people = {person.pk: person.points for person in pyramid.stream(options.members)}
    askers = [pk for pk, level in people.items() if 11 <= level <= 20][:5000]
    rng = random.Random(1)

    def verbs(ranking: Any) -> dict[str, Callable[[], Any]]:
        competition = ranking.by("competition")
        return {
            "recommend(10)": lambda: ranking.recommend(rng.choice(askers), 10),
            "recommend(10), ranks": lambda: list(map(tuple, ranking.recommend(rng.choice(askers), 10))),
            "recommend(3)": lambda: ranking.recommend(rng.choice(askers), 3),
            "rank()": lambda: ranking.rank(rng.choice(askers)),
            "rank(), competition": lambda: competition.rank(rng.choice(askers)),
            "top(10)": lambda: ranking.top(10),
            "around(10)": lambda: ranking.around(rng.choice(askers), 10),
            "at_rank(), the middle": lambda: ranking.at_rank(options.members // 2),
        }

    with redis_server() as (client, server):
        indexes: dict[str, type[RankIndex]] = {"none": Whole}
        indexes |= {count: sharded(Part, int(count)) for count in options.shards.split(",")}
        asked: list[tuple[str, str, Callable[[], Any]]] = []
        for count, index in indexes.items():
            fill(index, people)
            asked += [(count, name, verb) for name, verb in verbs(index.ranking).items()]
        latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
        server_times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number in range(-1, max(1, options.rounds // 10)):
            rng.shuffle(asked)
            for count, name, verb in asked:
                before = spent(client)
                for _ in range(10):
                    began = perf_counter()
                    verb()
                    if number >= 0:
                        latencies[name, count].append(perf_counter() - began)
                if number >= 0:
                    server_times[name, count].append((spent(client) - before) / 10e6)
        print(f"{server}, {options.members:,} members; medians, ratio to no shards in brackets")
        print(f"{'':24}{'shards':>7}{'servers':>18}{'latency':>18}")
        found: dict[str, Any] = {}
        for name in verbs(Whole.ranking):
            for count in indexes:
                taken = [statistics.median(times[name, count]) for times in (server_times, latencies)]
                base = [statistics.median(times[name, "none"]) for times in (server_times, latencies)]
                shown = [f"{one * 1e6:,.0f} µs ({one / of:.1f})" for one, of in zip(taken, base, strict=True)]
                print(f"{name:24}{count:>7}{shown[0]:>18}{shown[1]:>18}")
                found[f"{name}, {count}"] = {"server": taken[0], "latency": taken[1]}
    if options.json:
        save(options.json, members=options.members, figures=found)


if __name__ == "__main__":
    main()
