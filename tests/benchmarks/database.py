"""The cost of an answer by SQL, without an index on the score and with one.

``python -m tests.benchmarks.database [--rows N] [--rounds N]``, on the database that ``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import random
import statistics
from time import perf_counter

from django.db import connection
from django.test.utils import override_settings

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import save
from tests.benchmarks.servers import tables

ANALYZE = {"sqlite": "ANALYZE", "postgresql": "VACUUM ANALYZE {}", "mysql": "ANALYZE TABLE {}"}


def main() -> None:
    options = parse_options(__doc__, rows=100_000, rounds=7)

    set_up()
    from django_zrank import RankIndex
    from tests.rankings import BySql
    from tests.testapp.models import Player

    class Bench(RankIndex):
        model = Player
        order = ("-level",)
        name = "bench"
        band = 10
        facets = ("is_active",)

    def run(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql.format("testapp_player"))

    measured: dict[str, dict[str, list[float]]] = {}

    def measure(title: str) -> None:
        ranking, rows = BySql(Bench.instance()), Player.objects.filter(is_active=True).order_by("level", "pk")
        middle = rows[int(0.4 * (options.rows // 2 - 1))].pk
        everybody = range(1, options.rows + 1)
        questions = {
            "count": ranking.count,
            "rank": lambda: ranking.rank(middle),
            "ranks of 100": lambda: ranking.ranks(everybody[::1000]),
            "10 around me": lambda: ranking.around(middle),
            "counts of a facet": lambda: ranking.counts("is_active"),
            "recommend 10, a middle level": lambda: ranking.recommend(middle),
            "recommend 10 of everybody": lambda: ranking.recommend(middle, band=4000),
            "… 95 of 100 excluded": lambda: ranking.recommend(
                middle, band=4000, exclude=[pk for pk in everybody if pk % 20]
            ),
        }
        for name, ask in questions.items():
            seconds = []
            for _ in range(options.rounds):
                began = perf_counter()
                answer = ask()
                seconds.append(perf_counter() - began)
            measured.setdefault(title, {})[name] = seconds
            seen = f"of {answer.candidates:,}" if name.startswith(("rec", "…")) else ""
            print(f"  {name:30} {statistics.median(seconds) * 1000:7.0f} ms {seen}", flush=True)

    def level(rng: random.Random) -> int:
        """As on a live system of 20 million: half of them in the first thirty levels, the rest thinly spread."""
        place = rng.random()
        bounds = ((0.221, 1, 10), (0.379, 11, 20), (0.459, 21, 30), (1, 31, 3500))
        return next(rng.randint(low, high) for share, low, high in bounds if place < share)

    with tables(), override_settings(ZRANK={"DATABASE_TIMEOUT": 600.0}):
        rng = random.Random(1)
        rows = (
            Player(pk=pk, level=level(rng), bio="x" * 100, is_active=pk % 2 > 0)
            for pk in range(1, options.rows + 1)
        )
        Player.objects.bulk_create(rows, batch_size=100 if connection.vendor == "sqlite" else 5000)
        print(f"{connection.display_name}, {options.rows:,} rows")
        for title in ("without an index on the score", "with one"):
            run(ANALYZE[connection.vendor])
            print(title)
            measure(title)
            if title.startswith("without"):
                run("CREATE INDEX player_level ON {} (level)")
        save(options, database=connection.display_name, seconds=measured)


if __name__ == "__main__":
    main()
