"""Bytes a member, by what an index declares, beside a bare sorted set filled by ZADD.

``python -m tests.benchmarks.memory [--members N] [--json FILE]``, on the server that ``ZRANK_TEST_REDIS_BINARY`` names.

Each on a server of its own, which holds nothing else: the sum of MEMORY USAGE over all keys, counted to the last
element, and by how much ``used_memory`` grew. Exit status 1 where an index of one criterion without facets is larger
than the bare sorted set by more than 2 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import redis

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.pyramid import Person, build
from tests.benchmarks.rounds import save
from tests.benchmarks.servers import redis_server

TOLERATED = 1.02
"""The largest permitted size of an index of one criterion, over that of the bare sorted set."""


class Usage(NamedTuple):
    """The memory that a server uses."""

    keys: int
    total: int
    """Bytes of all keys."""

    memberships: int
    """Bytes of the hash that holds the tie bytes and the facets of each member."""

    grown: int
    """By how many bytes the server's memory grew."""


Load = Callable[[list[Person], redis.Redis], Any]


def main() -> int:
    options = parse_options(__doc__, members=1_000_000)

    set_up()
    people = sorted(build(options.members), key=attrgetter("points"))
    usages: dict[str, Usage] = {}
    for title, load in contents():
        version, usages[title] = measure(load, people)
        if len(usages) == 1:
            print(f"{version}, {options.members:,} members, bytes a member")
            print(
                f"{'':36} {'keys':>5} {'all keys':>9} {'ratio':>6} {'memberships':>8} {'used_memory':>12} {'ratio':>6}"
            )
        bare, usage = usages["bare sorted set"], usages[title]
        print(
            f"{title:36} {usage.keys:5} {usage.total / options.members:9.1f} {usage.total / bare.total:6.3f} "
            f"{usage.memberships / options.members:8.1f} "
            f"{usage.grown / options.members:12.1f} {usage.grown / bare.grown:6.3f}",
            flush=True,
        )
    save(options, server=version, usage={title: usage._asdict() for title, usage in usages.items()})
    return int(usages["one criterion"].total > TOLERATED * bare.total)


def contents() -> Iterator[tuple[str, Load]]:
    """Yield the titles of the indexes to measure, and the functions that load them."""
    from django_zrank import RankIndex
    from tests.populations import load
    from tests.testapp.models import Competitor

    def index(order: tuple[str, ...], facets: tuple[Any, ...] = (), method: str = "ordinal") -> Load:
        declared = {
            "model": Competitor,
            "name": "competitor",
            "order": order,
            "facets": facets,
            "ranking_method": method,
        }
        kind = type("Measured", (RankIndex,), declared)
        paths = [*kind.instance().ordering.paths, *kind.instance().faceting.paths]
        pick = attrgetter("pk", *paths)
        return lambda people, client: load(kind, map(pick, people))

    one, two = ("-points",), ("-points", "joined")
    yield "bare sorted set", zadd
    yield "one criterion", index(one)
    yield "two criteria", index(two)
    yield "one facet", index(one, ("region",))
    yield "two facets", index(one, ("region", "platform"))
    yield "two facets and both together", index(one, ("region", "platform", ("region", "platform")))
    yield "two criteria, one facet", index(two, ("region",))
    yield "dense, 3,500 values at most", index(one, method="dense")
    yield "dense, two criteria, no value twice", index(two, method="dense")


def zadd(people: list[Person], client: redis.Redis) -> None:
    """A plain sorted set, filled with ZADD."""
    pairs = ((str(person.pk), person.points) for person in people)
    while batch := dict(islice(pairs, 2000)):
        client.zadd("bare", batch)


def measure(load: Load, people: list[Person]) -> tuple[str, Usage]:
    """Load an index into a new server. Returns the server's name, and its memory."""
    with redis_server() as (client, name):
        load(people[:100], client)  # what the scripts take is no member's
        client.flushall()
        before = client.info("memory")["used_memory"]
        load(people, client)
        grown = client.info("memory")["used_memory"] - before
        sizes = {key: client.memory_usage(key, samples=0) for key in client.scan_iter(count=1000)}
        memberships = sum(size for key, size in sizes.items() if key.endswith(b":memberships"))
    return name, Usage(len(sizes), sum(sizes.values()), memberships, grown)


if __name__ == "__main__":
    raise SystemExit(main())
