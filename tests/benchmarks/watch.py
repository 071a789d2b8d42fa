"""The cost of a worker while nothing changes, by the number of indexes: its share of a core, and the scripts that it
has a server run.

``python -m tests.benchmarks.watch [--seconds N] [--json FILE]``, on the database that ``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from django.db import connection, models

from tests.benchmarks import rounds
from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.servers import redis_server, tables

_NUMBERS: Final = (1, 7, 21)


def main() -> None:
    options = parse_options(__doc__, seconds=20)

    set_up()
    from django_zrank import RankIndex
    from django_zrank.capture import triggers
    from django_zrank.models import Mark
    from django_zrank.store import Store
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.sync.watch import watch

    class Watched(models.Model):
        level = models.IntegerField(null=True)

        class Meta:
            app_label = "testapp"

    def index(name: str) -> RankIndex:
        return type(
            "BenchRank", (RankIndex,), {"model": Watched, "order": ("-level",), "name": name}
        ).instance()

    measured: dict[str, Any] = {}
    with redis_server(), tables():
        Watched.objects.bulk_create(Watched(level=level) for level in range(100))
        print(f"{connection.display_name}, {options.seconds} s each\n")
        print("indexes   share of a core   scripts a second")
        for number in _NUMBERS:
            indexes = [index(f"watched-{number}-{at}") for at in range(number)]
            triggers.install("default", indexes)
            for one in indexes:
                rebuild(one)
            Mark.objects.all().delete()
            client = Store.of(indexes[0]).client

            def scripts(client: Any = client) -> int:
                return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

            stop = threading.Event()
            threading.Timer(options.seconds, stop.set).start()
            before, began, cpu = scripts(), time.perf_counter(), time.process_time()
            watch(indexes, interval=0.5, stop=stop)
            seconds, share = time.perf_counter() - began, time.process_time() - cpu
            measured[str(number)] = {"share": share / seconds, "scripts": (scripts() - before) / seconds}
            print(f"{number:7d}   {100 * share / seconds:13.2f} %   {measured[str(number)]['scripts']:16.0f}")
        rounds.save(options, database=connection.display_name, figures=measured)


if __name__ == "__main__":
    main()
