"""Reads of an index with shards over reads of the same index without: time of the servers in their commands and of
their processors, and of the client's processor, which a busy machine doesn't stretch, and latency of a call.

``python -m tests.benchmarks.shards [--members N] [--shards 3,16,64] [--rounds N] [--only WORD] [--json FILE]``

All shards are on one server. ``together``: one script reads them, where there is one for several. ``apart``: each is
read by its own, as in a cluster: the server's time is the sum of what several would take, and latency gains nothing
from parallelism. Levels are shared by many members; ``distinct`` scores by none.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from operator import sub
from time import perf_counter, thread_time
from typing import Any
from unittest import mock

from redis import Redis

from tests.benchmarks.options import parse_options, set_up


def spent(client: Redis) -> tuple[float, float]:
    """Seconds that the server has spent on commands of indexes, and that it has used its processor for."""
    found: Any = client.info("commandstats", "cpu")
    names = ("evalsha", "zrevrank")
    commands = sum(found.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in names)
    return commands / 1e6, found["used_cpu_user_main_thread"] + found["used_cpu_sys_main_thread"]


def main() -> None:
    options = parse_options(__doc__, members=1_000_000, shards=(3, 16, 64), rounds=1000, only="")

    set_up()
    from django_zrank import RankIndex
    from django_zrank.shards import reader
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

    class DistinctWhole(Whole):
        name = "distinct-whole"

    class DistinctPart(Whole):
        name = "distinct-part"

    people = {person.pk: person.points for person in pyramid.stream(options.members)}
    askers = [pk for pk, level in people.items() if 11 <= level <= 20][:5000]
    rng = random.Random(1)

    def row() -> Player:
        pk = rng.choice(askers)
        return Player(pk=pk, level=people[pk])

    def verbs(ranking: Any, distinct: Any) -> dict[str, Callable[[], Any]]:
        competition = ranking.by("competition")
        reads: dict[str, Callable[[], Any]] = {
            "recommend(row, 10)": lambda: ranking.recommend(row(), 10),
            "recommend(pk, 10)": lambda: ranking.recommend(rng.choice(askers), 10),
            "rank(pk), distinct": lambda: distinct.rank(rng.choice(askers)),
            "rank(pk)": lambda: ranking.rank(rng.choice(askers)),
            "rank(pk), competition": lambda: competition.rank(rng.choice(askers)),
            "around(10)": lambda: ranking.around(rng.choice(askers), 10),
            "at_rank(), the middle": lambda: ranking.at_rank(options.members // 2),
        }
        return {name: read for name, read in reads.items() if options.only in name}

    def each_alone(read: Callable[[], Any]) -> None:
        with mock.patch.object(reader, "spreads_keys", return_value=True):
            for _ in range(10):
                read()

    def as_it_is(read: Callable[[], Any]) -> None:
        for _ in range(10):
            read()

    with redis_server() as (client, server):
        asked: list[tuple[str, str, Callable[[], Any], Callable[[Any], None]]] = []
        for count in (1, *options.shards):
            index, distinct = sharded(Part, count), sharded(DistinctPart, count)
            if count == 1:
                index, distinct = Whole, DistinctWhole
            fill(index, people)
            fill(distinct, {pk: pk for pk in people})
            found = verbs(index.ranking, distinct.ranking)
            ways = {"none": as_it_is} if count == 1 else {"together": as_it_is, "apart": each_alone}
            asked += [
                (f"{'' if count == 1 else f'{count} '}{how}", name, verb, way)
                for how, way in ways.items()
                for name, verb in found.items()
            ]
        measured: dict[str, dict[str, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
        for number in range(-1, max(1, options.rounds // 10)):
            rng.shuffle(asked)
            for how, name, verb, way in asked:
                way(verb)  # others leave the caches of the processor cold
                before, began, used = spent(client), perf_counter(), thread_time()
                way(verb)
                used, took, after = thread_time() - used, perf_counter() - began, spent(client)
                if number >= 0:
                    measured[name][how].append((*map(sub, after, before), used, took))
        print(f"{server}, {options.members:,} members; medians of ten calls, ratio to no shards in brackets")
        heads = "".join(f"{what:>20}" for what in ("commands", "processor", "client", "latency"))
        print(f"{'':26}{'shards':>12}{heads}")
        figures: dict[str, Any] = {}
        for name in measured:
            medians = {
                how: [statistics.median(each) / 10 for each in zip(*taken, strict=True)]
                for how, taken in measured[name].items()
            }
            medians = {"none": medians.pop("none"), **medians}
            for how, taken in medians.items():
                ratios = zip(taken, medians["none"], strict=True)
                shown = [f"{one * 1e6:,.0f} µs ({one / of:.1f})" for one, of in ratios]
                print(f"{name:26}{how:>12}" + "".join(f"{one:>20}" for one in shown))
            figures[name] = medians
    save(options, figures=figures)


if __name__ == "__main__":
    main()
