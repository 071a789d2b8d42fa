"""The rate at which waiting marks are processed: those of one update() of many rows.

``python -m tests.benchmarks.drain [--rows N] [--rounds N] [--json FILE]``, on the database
that ``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import statistics
from time import perf_counter

from django.db import connection
from django.db.models import F

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import save
from tests.benchmarks.servers import redis_server, tables


def main() -> None:
    options = parse_options(__doc__, rows=200_000, rounds=3)

    set_up()
    from django_zrank.sync.drain import drain
    from django_zrank.sync.rebuild import rebuild
    from tests.testapp.models import Player
    from tests.testapp.zrank import PlayerAscending

    index = PlayerAscending.instance()
    with redis_server() as (_, server), tables():
        Player.objects.bulk_create((Player(level=row % 4000) for row in range(options.rows)), batch_size=500)
        rebuild(index)
        drain(index)
        rates = []
        for _ in range(options.rounds):
            Player.objects.update(level=F("level") + 1)
            began = perf_counter()
            marks = drain(index)
            rates.append(marks / (perf_counter() - began))
            print(
                f"{connection.display_name}, {server}: {marks:,} marks, {rates[-1]:,.0f} a second", flush=True
            )
        print(f"median {statistics.median(rates):,.0f}")
        save(options, database=connection.display_name, rates=rates)


if __name__ == "__main__":
    main()
