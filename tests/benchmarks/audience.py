"""What the counts of a group take: ``group.counts()`` beside the count of each value by a filter, and
``filter(group=…).counts()``; and what they add to joining and leaving the group.

``python -m tests.benchmarks.audience [--viewers N] [--rounds N] [--json FILE]``

Every viewer has one of 8 regions, one of 3 platforms and one of 6 numbers of losses, in place of age groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from django.db import connections

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server

COLUMNS = {"region": 8, "platform": 3, "lost": 6}
STAY = timedelta(minutes=2)
MANY = 500
"""Members that join or leave in one call."""


def main() -> None:
    options = parse_options(__doc__, viewers=75_000, rounds=200)

    set_up()
    from django_zrank import RankIndex
    from tests.populations import load
    from tests.testapp.models import Competitor

    class Audience(RankIndex):
        name = "audience"
        model = Competitor
        order = ("-points",)
        facets = tuple(COLUMNS)

        def get_group_counts(self, group: str) -> Any:
            return tuple(COLUMNS) if group.startswith("counted") else ()

    rng = random.Random(1)
    members = 2 * options.viewers
    with redis_server() as (client, name):
        rows = [[pk, pk, *(rng.randrange(values) for values in COLUMNS.values())] for pk in range(members)]
        load(Audience, rows)
        print(f"{name}, {options.viewers:,} viewers, {options.rounds:,} rounds")

        viewers = rng.sample(range(members), options.viewers)
        counted, plain = Audience.group("counted"), Audience.group("plain")
        counted.add(viewers)
        plain.add(viewers)
        expected = {path: counted.counts(path) for path in COLUMNS}
        ranking = Audience.ranking.filter(group="plain")
        assert {path: ranking.counts(path) for path in COLUMNS} == expected

        keys = [*client.scan_iter("*:group:*", count=10_000)]
        held = {key.decode().partition(":group:")[2]: client.memory_usage(key, samples=0) for key in keys}
        print(
            ", ".join(f"{key}: {size / options.viewers:.0f} bytes per viewer" for key, size in held.items())
        )

        print(f"\n{len(COLUMNS)} columns of all viewers")

        def by_filters() -> None:
            drop_combined(client)
            for path, found in expected.items():
                assert {value: ranking.filter(**{path: value}).count() for value in found} == found

        def by_ranking() -> None:
            drop_combined(client)
            assert {path: ranking.counts(path) for path in COLUMNS} == expected

        def by_group() -> None:
            assert {path: counted.counts(path) for path in COLUMNS} == expected

        ways = {
            "count() of each value": by_filters,
            "ranking.counts()": by_ranking,
            "group.counts()": by_group,
        }
        audience = compare(ways, max(5, options.rounds // 20))
        report(audience, "count() of each value")

        groups = {"not counted": "joining", "counted": "counted-joining"}
        found = {"counts": figures(audience, "count() of each value")}
        for size in (1, MANY):
            print(f"\n{size} join, extend their time, leave")
            turns = {what: count() for what in groups}

            def changing(change: str, size: int = size, turns: Any = turns) -> dict[str, Callable[[], None]]:
                def call(what: str) -> None:
                    at = next(turns[what]) * size % members
                    some = range(at, min(at + size, members))
                    group = Audience.group(groups[what])
                    if change == "remove":
                        group.remove(some)
                    else:
                        group.add(some, expires=STAY)

                return {what: lambda what=what: call(what) for what in groups}  # type: ignore[misc]

            for what, change in (("join", "add"), ("extend", "add"), ("leave", "remove")):
                for group in groups:
                    turns[group] = count()
                print(what)
                timed = compare(changing(change), options.rounds)
                report(timed, "not counted")
                found[f"{what} {size}"] = figures(timed, "not counted")
    connections.close_all()
    save(options, server=name, bytes=held, questions=found)


def drop_combined(client: Any) -> None:
    """As after some seconds: those that are kept would answer at once."""
    if keys := [*client.scan_iter("*:combined_filter*", count=10_000)]:
        client.unlink(*keys)


if __name__ == "__main__":
    main()
