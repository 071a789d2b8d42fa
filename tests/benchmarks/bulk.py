"""The cost of capture for a bulk change: update() of all rows of tables alike, one bare, the others watched by several
indexes each, side by side.

``python -m tests.benchmarks.bulk [--rows N] [--rounds N] [--indexes N,N,…] [--cpu] [--json FILE]``, on the database
that ``ZRANK_TEST_DATABASE`` names. ``--cpu`` counts seconds of the processor, of this process and of its PostgreSQL
backend if that runs here, in place of those of the clock: for a machine that does other work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from django.db import connection, models
from django.db.models import F

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import ranked, tables


def main() -> None:
    options = parse_options(__doc__, rows=20_000, rounds=20, indexes=(1, 4), cpu=False)

    set_up()
    from django_zrank.capture.triggers import install
    from django_zrank.models import Mark

    class Columns(models.Model):
        name = models.CharField(max_length=40, default="")
        level = models.IntegerField(null=True)
        bio = models.TextField(default="A player, like many others.")
        is_active = models.BooleanField(default=True)
        joined = models.DateTimeField(auto_now_add=True)

        class Meta:
            abstract = True
            app_label = "testapp"

    def table(count: int) -> type[models.Model]:
        return type(f"Watched{count}", (Columns,), {"__module__": __name__, "Meta": Columns.Meta})

    watched = {count: table(count) for count in (0, *options.indexes)}
    with tables():
        install("default", [ranked(model, n) for count, model in watched.items() for n in range(count)])
        for model in watched.values():
            model.objects.bulk_create((model(level=level) for level in range(options.rows)), batch_size=500)
        Mark.objects.all().delete()

        def update(model: Any) -> Callable[[], Any]:
            return lambda: model.objects.update(level=F("level") + 1)

        rivals = {f"{count or 'no'} index{'es' * (count != 1)}": update(m) for count, m in watched.items()}
        clock = processor() if options.cpu else perf_counter
        seconds = compare(rivals, options.rounds, clock=clock)
        unit = "seconds of the processor" if options.cpu else "seconds"
        print(
            f"{connection.display_name}, update() of {options.rows:,} rows, {options.rounds} rounds, {unit}"
        )
        report(seconds, next(iter(rivals)))
        print(f"{Mark.objects.count():,} marks")
        save(
            options, database=connection.display_name, figures=figures(seconds, next(iter(rivals))), unit=unit
        )


def processor() -> Callable[[], float]:
    """Return a clock of the seconds that this process has used the processor, and its PostgreSQL backend."""
    connection.ensure_connection()
    driver: Any = connection.connection
    path = Path("/proc/self/nowhere")
    if connection.vendor == "postgresql":
        path = Path(f"/proc/{driver.info.backend_pid}/schedstat")

    def clock() -> float:
        used = 0
        with suppress(OSError):
            used = int(path.read_text().split()[0])
        return process_time() + used / 1e9

    return clock


if __name__ == "__main__":
    main()
