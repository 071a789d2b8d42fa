"""Many recommendations at once: in one event loop, and on threads.

``python -m tests.benchmarks.concurrent [--members N] [--at-once N] [--threads N] [--rounds N]``
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import django
from django.conf import settings
from django.test.utils import override_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank import RankIndex
    from django_zrank.testing import EmbeddedServer
    from tests.populations import fill
    from tests.testapp.models import Player

    class Crowd(RankIndex):
        model = Player
        order = ("-level",)
        name = "crowd"
        band = 1000

    with EmbeddedServer() as server:
        cache = {**settings.CACHES["zrank"], "LOCATION": server.url}
        cache["OPTIONS"] = {"CONNECTION_POOL_KWARGS": {"max_connections": max(options.threads, 1)}}
        with override_settings(CACHES={**settings.CACHES, "zrank": cache}), asyncio.Runner() as runner:
            fill(Crowd, {pk: pk for pk in range(options.members)})
            members = random.Random(1).sample(range(options.members), options.at_once)

            async def all_of_them() -> None:
                await asyncio.gather(*map(Crowd.ranking.arecommend, members))

            with ThreadPoolExecutor(options.threads) as threads:
                ways: dict[str, Callable[[], Any]] = {
                    "arecommend(), one loop": lambda: runner.run(all_of_them()),
                    f"recommend(), {options.threads} threads": lambda: list(
                        threads.map(Crowd.ranking.recommend, members)
                    ),
                    "recommend(), one after the other": lambda: list(map(Crowd.ranking.recommend, members)),
                }
                seconds: dict[str, list[float]] = {title: [] for title in ways}
                for number in range(options.rounds + 1):
                    for title, run in ways.items():
                        began = perf_counter()
                        run()
                        if number:  # the first connects
                            seconds[title].append(perf_counter() - began)
            print(f"{options.at_once} at once, {options.members:,} members, median of {options.rounds}:")
            for title, took in seconds.items():
                print(f"{title:34} {1000 * statistics.median(took):7.1f} ms")


if __name__ == "__main__":
    main()
