"""Processor time of the server for each call of a large operation. The goal: no call takes more than 5 ms, nor more
than 1.5 *yardsticks*: a ZADD of 1,000 new members at random places of a set of as many members as the index has.
Machines differ by five, and so do their milliseconds. *Ratio* is that of the 99th percentile to the yardstick's median.

``python -m tests.benchmarks.pieces [--members N] [--json FILE]``, on the Redis that ``ZRANK_TEST_REDIS_BINARY`` names,
by default the embedded Valkey. Two indexes are measured: of one criterion, and of the same with two facets and their
composite.

Other processes on the machine don't add to processor time, unlike to SLOWLOG and to the waits that
``tests.benchmarks.hold`` measures, but it grows where they keep the caches busy.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from django.db import models
from redis import Redis

from django_zrank.iteration import batched
from tests.benchmarks.cores import calls_timed, used
from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import percentiles, save
from tests.writes import apply_changes, begin_write

CALLS = 20
"""The number of touches and of changes of scores."""

MANY = 1000
"""Members of each of these."""

FEW = 10_000
"""The number of members whose ranks are read in one call."""

MOVED = 50_000
"""Members that a drain writes, at most a fifth of all."""


def main() -> int:
    options = parse_options(__doc__, members=100_000)
    set_up()
    from tests.benchmarks.servers import redis_server

    measured = {}
    with redis_server() as (redis, name):
        print(f"{name}, {options.members:,} members; ms of the processor a call")
        print(f"{'':40} {'calls':>6} {'p50':>6} {'p99':>6} {'max':>6} {'ratio':>6}")
        figures = yardstick(redis, options.members)
        measured["yardstick"] = {"ZADD": show(f"ZADD of {MANY:,}", figures, figures)}
        for index in declare():
            measured[index.name] = Measurement(index, options.members, redis).run(figures)
    save(options, server=name, milliseconds=measured)
    return 0


def yardstick(redis: Redis, size: int) -> list[float]:
    """Return the seconds of each ZADD of new members to a sorted set of ``size``, which is removed."""
    from tests.benchmarks.pyramid import by_level

    about: Any = redis.info("server")
    rng, pid, taken = random.Random(2), about["process_id"], []
    for people in batched(by_level(size), 5000):
        redis.zadd("yardstick", {str(pk): level for pk, level in people})
    for call in range(CALLS):
        first = 20_000_000 + call * MANY
        scores = {str(first + number): rng.randrange(3500) for number in range(MANY)}
        before = used(pid)
        redis.zadd("yardstick", scores)
        taken.append(used(pid) - before)
    redis.unlink("yardstick")
    return taken


def show(what: str, seconds: list[float], measure: list[float]) -> dict[str, float]:
    """Print the times of calls in milliseconds, and relative to the yardstick. Return them."""
    figures = percentiles([1000 * each for each in seconds])
    ratio = figures["p99"] / percentiles([1000 * each for each in measure])["p50"]
    each = " ".join(f"{figure:6.2f}" for figure in (*figures.values(), ratio))
    print(f"{what:40} {len(seconds):6} {each}", flush=True)
    return {"calls": len(seconds), **figures, "ratio": ratio}


def declare() -> list[Any]:
    """The indexes."""
    from django_zrank import RankIndex

    class Piece(models.Model):
        points = models.IntegerField()
        region = models.CharField(max_length=20)
        platform = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    class Plain(RankIndex):
        model = Piece
        name = "plain"
        order = ("-points",)

    class Facets(Plain):
        name = "facets"
        facets = ("region", "platform", ("region", "platform"))

    return [Plain, Facets]


class Measurement:
    """Every operation on one index."""

    def __init__(self, ranked: Any, size: int, redis: Redis) -> None:
        from django_zrank.store import Store
        from tests.benchmarks.pyramid import by_level

        self.ranked, self.size, self.rng = ranked, size, random.Random(1)
        self.index = ranked.instance()
        self.store = Store.of(self.index)
        self.store.noted = {"write_behind": 0}
        self.members = by_level(size)
        self.pks = range(10_000_000, 10_000_000 + size)
        about: Any = redis.info("server")
        self.pid: int = about["process_id"]

    def run(self, measure: list[float]) -> dict[str, dict[str, float]]:
        """Return the number of calls of each operation, and their times in milliseconds. ``measure``: the yardstick."""
        measured = {}
        for what, operation in self.operations():
            with calls_timed(self.pid) as seconds:
                operation()
            measured[what] = show(f"{self.index.name}: {what}", seconds, measure)
        return measured

    def operations(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        from django_zrank.idle.touching import Touch
        from django_zrank.write_behind.changes import ChangeScores

        yield "rebuild", self.load
        self.store.swap_rebuilt(self.build)
        group = self.ranked.group("live")
        for members in batched(self.pks[: self.size // 4], 5000):
            group.add(*members)
        layout, ranking = self.index.layout, self.ranked.ranking
        yield "drain, other scores", lambda: self.write(self.some(self.size))
        if layout.memberships:
            yield "drain, moved between facets", lambda: self.write(self.some(self.size), moved=1)

        yield f"ranks() of {FEW:,}", lambda: ranking.ranks(self.rng.sample(self.pks, min(FEW, self.size)))

        def touch() -> None:
            for _ in range(CALLS):
                self.store.run(Touch(layout, self.some(MANY), 60).steps)

        yield f"touch() of {MANY:,}", touch

        limit = self.ranked.scores.limit

        def change() -> None:
            for call in range(CALLS):
                changes = [(member, 1 + call) for member in self.some(limit)]
                self.store.run(ChangeScores(layout, "sum", (-(2**53), 2**53), changes).steps)

        yield f"increment() of {limit}", change
        if layout.memberships:
            within = ranking.filter(group="live")
            yield "group and region: count()", lambda: within.filter(region="kantou").count()
            yield 'group: counts("region")', lambda: within.counts("region")
            yield "all but a region: top(10)", lambda: ranking.exclude(region="kansai").top(10)

    def load(self) -> None:
        """Build the index, but for the swap."""
        from tests.builds import load_rows

        health = self.store.check_health()
        self.build = self.index.new_build()
        self.store.start_rebuild(self.build, owner="bench", server=health.server, term=1)
        for rows in batched(self.members, 2000):
            assert load_rows(
                self.store, self.build, [(str(pk), level, self.membership(pk)) for pk, level in rows]
            )

    def write(self, members: list[str], moved: int = 0) -> None:
        some = members[: min(MOVED, self.size // 5)]
        for batch in batched(some, MANY):
            changes = [
                (member, self.rng.randrange(3500), self.membership(int(member) + moved)) for member in batch
            ]
            assert apply_changes(self.store, begin_write(self.store), changes)

    def some(self, number: int) -> list[str]:
        """Members, in no order."""
        return list(map(str, self.rng.sample(self.pks, number)))

    def membership(self, number: int) -> bytes:
        from tests.benchmarks.pyramid import PLATFORMS, REGIONS

        if not self.index.layout.memberships:
            return b""
        region, platform = REGIONS[number % 8], PLATFORMS[number // 8 % 6]
        return f"platform:{platform}\0region,platform:{region},{platform}\0region:{region}".encode()


if __name__ == "__main__":
    sys.exit(main())
