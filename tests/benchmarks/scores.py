"""Changes of scores that begin in Redis, over a bare ZINCRBY and over ``F()`` and ``save()``; and flushes.

``python -m tests.benchmarks.scores [--rows N] [--rounds N] [--json FILE]``, on the database that
``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import django
from django.db import connection
from django.db.models import F


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank.scripts import INCREMENT_SCORES
    from django_zrank.store import Store
    from django_zrank.sync.drain import drain
    from django_zrank.sync.flush import flush
    from django_zrank.sync.rebuild import rebuild
    from tests.benchmarks.rounds import compare, figures, report, save
    from tests.benchmarks.servers import redis_server
    from tests.testapp.models import Video
    from tests.testapp.zrank import VideoRank

    index, scores = VideoRank.instance(), VideoRank.scores
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, redis_server() as (client, name):
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(Path(folder) / "zrank.sqlite3")
        original = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            Video.objects.bulk_create((Video(views=n % 4000) for n in range(options.rows)), batch_size=500)
            rebuild(index)
            drain(index)
            pks = list(Video.objects.values_list("pk", flat=True))
            same = Store(index.name, index.layout).client  # the app's own connections
            client.zunionstore("bare", [Store(index.name).live.root])
            print(f"{connection.display_name}, {name}, {options.rows:,} members")

            def save_one() -> None:
                video = Video(pk=random.choice(pks), views=F("views") + 1)
                video.save(update_fields=["views"], force_update=True)

            seconds = compare(
                {
                    "ZINCRBY": lambda: same.zincrby("bare", 1, str(random.choice(pks))),
                    "increment()": lambda: scores.increment(random.choice(pks)),
                    "increment() of 1,000": lambda: scores.increment(
                        dict.fromkeys(random.sample(pks, 1000), 1)
                    ),
                    "F() and save()": save_one,
                },
                options.rounds,
                limit=20,
            )
            report(seconds, "ZINCRBY")
            measured["calls"] = figures(seconds, "ZINCRBY")
            many = 1000 / statistics.median(seconds["increment() of 1,000"])
            print(f"increments a second, 1,000 in a call: {many:,.0f}")

            def server_time(command: str, call: Any) -> float:
                client.config_resetstat()
                for _ in range(options.rounds):
                    call()
                stats: Any = client.info("commandstats")
                return float(stats[f"cmdstat_{command}"]["usec_per_call"])

            bare = server_time("zincrby", lambda: same.zincrby("bare", 1, str(random.choice(pks))))
            own = server_time("evalsha", lambda: scores.increment(random.choice(pks)))
            print(
                f"server: ZINCRBY {bare:.2f} µs, {INCREMENT_SCORES.name}.lua {own:.2f} µs, ratio {own / bare:.1f}"
            )
            measured |= {"many": many, "server": {"zincrby": bare, "increment_scores": own}}

            rates = []
            for _ in range(3):
                flush(index)
                drain(index)
                for start in range(0, min(len(pks), 60_000), 1000):
                    scores.increment(dict.fromkeys(pks[start : start + 1000], 1))
                began = perf_counter()
                members = flush(index)
                rates.append(members / (perf_counter() - began))
            print(f"flushed members a second: median {statistics.median(rates):,.0f} of {members:,}")
            measured["flushed"] = rates
            if options.json:
                save(options.json, database=connection.display_name, rows=options.rows, **measured)
        finally:
            connection.creation.destroy_test_db(original, verbosity=0)


if __name__ == "__main__":
    main()
