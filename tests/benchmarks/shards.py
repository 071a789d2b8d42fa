"""Reads of an index with shards over reads of the same index without: time of the servers in their commands and of
their processors, which a busy machine doesn't stretch, and latency of a call.

``python -m tests.benchmarks.shards [--members N] [--shards 1,3,16,64] [--rounds N] [--only WORD] [--json FILE]``

All shards are on one server: its time is the sum of what several would take, and latency gains nothing from
parallelism.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from operator import sub
from time import perf_counter
from typing import Any

from redis import Redis

from tests.benchmarks.options import parse_options, set_up


def spent(client: Redis) -> tuple[float, float]:
    """Seconds that the server has spent on commands of indexes, and that it has used its processor for."""
    found: Any = client.info("commandstats", "cpu")
    names = ("evalsha", "zrevrank")
    commands = sum(found.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in names)
    return commands / 1e6, found["used_cpu_user_main_thread"] + found["used_cpu_sys_main_thread"]


def main() -> None:
    options = parse_options(__doc__, members=1_000_000, shards=(1, 3, 16, 64), rounds=1000, only="")

    set_up()
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

    def row() -> Player:
        pk = rng.choice(askers)
        return Player(pk=pk, level=people[pk])

    def verbs(ranking: Any) -> dict[str, Callable[[], Any]]:
        competition = ranking.by("competition")
        reads: dict[str, Callable[[], Any]] = {
            "recommend(row, 10)": lambda: ranking.recommend(row(), 10),
            "rank()": lambda: ranking.rank(rng.choice(askers)),
            "rank(), competition": lambda: competition.rank(rng.choice(askers)),
            "around(10)": lambda: ranking.around(rng.choice(askers), 10),
            "at_rank(), the middle": lambda: ranking.at_rank(options.members // 2),
        }
        return {name: read for name, read in reads.items() if options.only in name}

    with redis_server() as (client, server):
        indexes: dict[str, type[RankIndex]] = {"none": Whole}
        indexes |= {str(count): sharded(Part, count) for count in options.shards}
        asked: list[tuple[str, str, Callable[[], Any]]] = []
        for count, index in indexes.items():
            fill(index, people)
            asked += [(count, name, verb) for name, verb in verbs(index.ranking).items()]
        measured: dict[str, dict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
        for number in range(-1, max(1, options.rounds // 10)):
            rng.shuffle(asked)
            for count, name, verb in asked:
                before, began = spent(client), perf_counter()
                for _ in range(10):
                    verb()
                took, after = perf_counter() - began, spent(client)
                if number >= 0:
                    measured[name][count].append((*map(sub, after, before), took))
        print(f"{server}, {options.members:,} members; medians of ten calls, ratio to no shards in brackets")
        heads = "".join(f"{what:>20}" for what in ("commands", "processor", "latency"))
        print(f"{'':30}{'shards':>7}{heads}")
        found: dict[str, Any] = {}
        for name in verbs(Whole.ranking):
            medians = {
                count: [statistics.median(each) / 10 for each in zip(*measured[name][count], strict=True)]
                for count in indexes
            }
            for count, taken in medians.items():
                ratios = zip(taken, medians["none"], strict=True)
                shown = [f"{one * 1e6:,.0f} µs ({one / of:.1f})" for one, of in ratios]
                print(f"{name:30}{count:>7}" + "".join(f"{one:>20}" for one in shown))
            found[name] = medians
    save(options, figures=found)


if __name__ == "__main__":
    main()
