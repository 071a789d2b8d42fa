"""Many recommendations at once: in one event loop, and on threads.

``python -m tests.benchmarks.concurrent [--members N] [--at-once N] [--threads N] [--rounds N] [--json FILE]``

The server is the one that ``ZRANK_TEST_REDIS_BINARY`` names, by default the embedded one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import process_time
from typing import Any

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server

LOOP = "arecommend(), one loop"


def main() -> None:
    options = parse_options(__doc__, members=100_000, at_once=500, threads=100, rounds=20)

    set_up()
    from django_zrank import RankIndex
    from tests.populations import fill
    from tests.testapp.models import Player

    class Crowd(RankIndex):
        model = Player
        order = ("-level",)
        name = "crowd"
        band = 1000

    with redis_server() as (_, name), asyncio.Runner() as runner:
        fill(Crowd, {pk: pk for pk in range(options.members)})
        members = random.Random(1).sample(range(options.members), options.at_once)
        recommend = Crowd.ranking.recommend

        async def all_of_them() -> None:
            await asyncio.gather(*map(Crowd.ranking.arecommend, members))

        with ThreadPoolExecutor(options.threads) as threads:
            ways: dict[str, Callable[[], Any]] = {
                LOOP: lambda: runner.run(all_of_them()),
                f"recommend(), {options.threads} threads": lambda: list(threads.map(recommend, members)),
                "recommend(), one after the other": lambda: list(map(recommend, members)),
            }
            print(f"{name}, {options.members:,} members, {options.at_once} recommendations at once")
            measured = {}
            clocks: dict[str, dict[str, Any]] = {"wall clock": {}, "processor": {"clock": process_time}}
            for title, clock in clocks.items():
                print(f"\n{title}:")
                seconds = compare(ways, options.rounds, **clock)
                report(seconds, LOOP)
                measured[title] = figures(seconds, LOOP)
    save(options, **measured)


if __name__ == "__main__":
    main()
