"""The cost of capture and push for a writer: tables alike, one of them bare, one watched by triggers and one pushed
to Redis, too, side by side. And the least that a push can take: the statement that reads the row, and one call to a
script, sent as any code of a project would send them, beside a save of a watched table.

``python -m tests.benchmarks.save [--rows N] [--rounds N] [--json FILE]``, on the database
that ``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from django.db import connection, models, transaction
from django.db.models import F
from redis import Redis

from tests.benchmarks import rounds
from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare
from tests.benchmarks.servers import ranked, redis_server, tables


def main() -> None:
    options = parse_options(__doc__, rows=20_000, rounds=2000, indexes=1)

    set_up()
    from django_zrank.capture import triggers
    from django_zrank.models import Mark
    from django_zrank.sync import signal_handlers
    from django_zrank.sync.rebuild import rebuild

    class Columns(models.Model):
        name = models.CharField(max_length=40, default="")
        level = models.IntegerField(null=True, db_index=True)
        bio = models.TextField(default="A player, like many others.")
        is_active = models.BooleanField(default=True)
        joined = models.DateTimeField(auto_now_add=True)

        class Meta:
            abstract = True
            app_label = "testapp"

    class Plain(Columns):
        pass

    class Watched(Columns):
        pass

    class Pushed(Columns):
        pass

    class Least(Columns):
        pass

    measured: dict[str, Any] = {}

    def report(title: str, seconds: dict[str, list[float]]) -> None:
        print(f"\n{title}")
        rounds.report(seconds, "without")
        measured[title] = rounds.figures(seconds, "without")

    def rivals(write: Callable[[type[models.Model]], Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
        return {"without": write(Plain), "with capture": write(Watched)}

    def save(model: Any, column: str = "level") -> Callable[[], Any]:
        rows = list(model.objects.order_by("pk")[:100])
        turn = iter(range(10**9))

        def one() -> models.Model:
            number = next(turn)
            row = rows[number % len(rows)]
            setattr(row, column, number)
            row.save()
            return row

        return one

    def in_transaction(write: Callable[[], Any]) -> Callable[[], Any]:
        return transaction.atomic(write)

    def least(client: Redis, save: Callable[[], Any]) -> Callable[[], Any]:
        """Return a save that is followed by what no push can do without."""
        digest = client.script_load("return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])")
        rows = f"SELECT id, level FROM {Least._meta.db_table} WHERE is_active AND id = %s"

        def one() -> None:
            row = save()
            with connection.cursor() as cursor:
                cursor.execute(rows, [row.pk])
                ((pk, level),) = cursor.fetchall()
            client.evalsha(digest, 1, "least", level, pk)

        return one

    def measure_push(client: Redis) -> None:
        """Measure what a push adds to a transaction, every drain included."""
        indexes = [ranked(Pushed, number) for number in range(options.indexes)]
        for each in indexes:
            rebuild(each)
            signal_handlers.connect(each)
        models_ = {"without": Plain, "with capture": Watched, "with capture and push": Pushed}
        ways = (("in autocommit", lambda one: one), ("and a commit", in_transaction))
        Mark.objects.all().delete()  # as a worker would
        for title, wrap in ways:
            unchanged = {name: wrap(save(model, "name")) for name, model in models_.items()}
            seconds = compare(unchanged, options.rounds)
            report(f"save() that changes no column that is read, {title}, with the push", seconds)
        for title, wrap in ways:
            rivals = {name: wrap(save(model)) for name, model in models_.items()}
            seconds = compare(
                {**rivals, "with capture, row, one call": least(client, wrap(save(Least)))}, options.rounds
            )
            report(f"save(), {title}, with the push", seconds)
            with_push, with_capture, _ = (statistics.median(seconds[name]) for name in reversed(models_))
            print(f"the push adds {(with_push - with_capture) * 1000:.2f} ms")

    with redis_server() as (client, _), tables():
        watching = [ranked(model, n) for n in range(options.indexes) for model in (Watched, Pushed, Least)]
        triggers.install("default", watching)
        for model in (Plain, Watched, Pushed, Least):
            model.objects.bulk_create((model(level=level) for level in range(options.rows)), batch_size=500)
        print(f"{connection.display_name}, {options.rounds:,} rounds, {options.indexes} indexes")
        measure_push(client)  # first: nobody processes the marks of the others
        for title, what in (
            ("save()", save),
            ("save() that changes no column that is read", lambda model: save(model, "name")),
            ("create()", lambda model: lambda: model.objects.create(level=5)),
        ):
            report(f"{title}, in autocommit", compare(rivals(what), options.rounds))
            with transaction.atomic():
                report(f"{title}, inside a transaction", compare(rivals(what), options.rounds))
        for model in (Plain, Watched):
            model.objects.filter(pk__gt=options.rows).delete()
        update = rivals(lambda model: lambda: model.objects.update(level=F("level") + 1))
        seconds = compare(update, max(options.rounds // 40, 5))
        report(f"update() of {Plain.objects.count():,} rows", seconds)
        rounds.save(options, database=connection.display_name, figures=measured)
        print(f"\n{Mark.objects.count():,} marks")


if __name__ == "__main__":
    main()
