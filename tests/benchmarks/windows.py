"""What a rolling window adds to a rebuild, to the processing of marks and to the push of a save: an index of the rows
that ``within`` selects beside one of the same rows, selected by a fixed time.

``python -m tests.benchmarks.windows [--rows N] [--rounds N] [--saves N] [--json FILE]``

The database is the one that ``ZRANK_TEST_DATABASE`` names. With a window, the database's clock is read with every row,
and a write compares the newest time that it has read with what was swept. *Processor* is the time of this process's.
*A sweep* of an index none of whose rows have left the window since the last one is what a worker does every second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import perf_counter, process_time
from typing import Any

from django.db import connection
from django.db.models import F
from django.utils import timezone

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server, tables

FIXED, WINDOW = "a fixed time", "a window"
WEEK = timedelta(days=7)


def main() -> None:
    options = parse_options(__doc__, rows=100_000, rounds=5, saves=500)

    set_up()
    from django_zrank import RankIndex
    from django_zrank.capture.triggers import install
    from django_zrank.models import Mark
    from django_zrank.sync.drain import drain
    from django_zrank.sync.push import try_push
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.windows.sweep import sweep
    from tests.testapp.models import Competitor

    now = timezone.now()
    last_week = {FIXED: {"joined__gt": now - WEEK}, WINDOW: {"joined__within": WEEK}}

    def declare(number: int, condition: dict[str, Any]) -> Any:
        def get_queryset(self: Any) -> Any:
            return Competitor.objects.filter(**condition)

        attributes = {"model": Competitor, "order": ("-points",), "name": f"bench-{number}"}
        return type("BenchRank", (RankIndex,), {**attributes, "get_queryset": get_queryset}).instance()

    indexes = {
        title: declare(number, condition) for number, (title, condition) in enumerate(last_week.items())
    }

    def change_all(index: Any) -> None:
        Mark.objects.all().delete()
        Competitor.objects.update(points=F("points") + 1)
        Mark.objects.exclude(index=index.name).delete()

    rng = random.Random(1)
    measured: dict[str, Any] = {}

    def present(title: str, seconds: dict[str, list[float]]) -> None:
        print(f"\n{title}")
        report(seconds, FIXED)
        measured[title] = figures(seconds, FIXED)

    with redis_server() as (_, server), tables():
        rows = (
            Competitor(points=row % 4000, joined=now - rng.random() * WEEK / 2) for row in range(options.rows)
        )
        Competitor.objects.bulk_create(rows, batch_size=500)
        install("default", list(indexes.values()))
        for index in indexes.values():
            rebuild(index)
        print(f"{connection.display_name}, {server}, {options.rows:,} rows, {options.rounds} rounds")
        steps: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
            "rebuild": (lambda index: None, rebuild),
            "marks of all rows": (change_all, drain),
        }
        for title, (before, step) in steps.items():
            seconds, cpu = in_turns(indexes, before, step, options.rounds)
            present(title, seconds)
            present(f"{title}, processor", cpu)
        members = [*Competitor.objects.order_by("pk").values_list("pk", flat=True)[:1000]]
        pushes = {
            title: lambda index=index: try_push({index: {rng.choice(members)}})  # type: ignore[misc]
            for title, index in indexes.items()
        }
        present("push of one row", compare(pushes, options.saves))
        print("\na sweep")
        sweeps = compare({WINDOW: lambda: sweep(indexes[WINDOW])}, options.saves)
        report(sweeps, WINDOW)
        measured["a sweep"] = figures(sweeps, WINDOW)
    save(options, server=server, database=connection.display_name, questions=measured)


def in_turns(
    indexes: dict[str, Any], before: Callable[[Any], Any], step: Callable[[Any], Any], rounds: int
) -> Sequence[dict[str, list[float]]]:
    """Return the seconds of a step for each index, and those of the processor. ``before`` isn't timed."""
    seconds: dict[str, list[float]] = {title: [] for title in indexes}
    cpu: dict[str, list[float]] = {title: [] for title in indexes}
    turns, rng = list(indexes.items()), random.Random(1)
    for _ in range(rounds):
        rng.shuffle(turns)
        for title, index in turns:
            before(index)
            began, busy = perf_counter(), process_time()
            step(index)
            seconds[title].append(perf_counter() - began)
            cpu[title].append(process_time() - busy)
    return seconds, cpu


if __name__ == "__main__":
    main()
