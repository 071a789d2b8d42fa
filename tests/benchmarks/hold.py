"""Waits of other clients while an index is written and read: nothing may hold the server.

``python -m tests.benchmarks.hold [--members N,N,…] [--only WORD] [--json FILE] [--plot FILE.png]``, on a private
PostgreSQL, or on the one that ``ZRANK_TEST_DATABASE`` and the variables beside it name; on the Redis that
``ZRANK_TEST_REDIS_BINARY`` names, by default the embedded Valkey.

Each operation runs beside another process that asks PING and ``recommend()`` in turn, a millisecond apart: *waits* are
its round trips, whose p99 and maximum stand beside those of the same process while nothing else runs. *Longest* is
the longest call that the server's SLOWLOG has of the operation, and its script. Of one index with one criterion,
and of one with two criteria, two facets and their composite.

The server has a core of its own, and goes before others as does who asks (as root). Clocks still go on while the host
of a virtual machine takes the core away, and while the process that asks is not run. So the waits stand beside what the
server did meanwhile, by the clock of its process: *processor*. *Queued* are the milliseconds for which it had no core,
because of other processes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from django.db import connection
from redis import Redis

from tests.benchmarks.beside import declare, end, start
from tests.benchmarks.cores import alone_on, queued
from tests.benchmarks.options import parse_options
from tests.benchmarks.plots import pyplot
from tests.benchmarks.pyramid import PLATFORMS, REGIONS, stream
from tests.benchmarks.rounds import percentiles, save
from tests.benchmarks.servers import django_on_postgresql, redis_server, tables

MOVED = 50_000
"""Members that a drain writes, at most half of all."""

WRITERS = 8
LONG_ENOUGH = 2.0
"""Seconds for which what is over sooner is done again and again."""

CEILING = 5
"""Milliseconds."""

Operation = Callable[[], Any]


def main() -> int:
    options = parse_options(__doc__, members=(100_000,), only="", plot=Path)
    if options.plot:
        pyplot()
    if find_spec("psycopg") is None:
        print("Needs pip install psycopg[binary]")
        return 0
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or [first])  # for PostgreSQL, and all that is started from here
    with django_on_postgresql() as is_ready:
        if not is_ready:
            return 0
        model, indexes = declare()
        measured = {}
        for size in options.members:
            with population(model, size, indexes), redis_server() as (redis, name):
                about: Any = redis.info("server")
                alone_on(first, about["process_id"])
                print(f"{name}, {connection.display_name}, {size:,} members", flush=True)
                measurement = Measurement(model, indexes, size, redis, options.only)
                measured[size] = measurement.run(about["process_id"])
    save(options, server=name, sizes=measured)
    if options.plot:
        panels = {f"{size:,} members": spans for size, spans in measured.items()}
        plot(options.plot, f"{name}, {connection.display_name}", panels)
    return 0


@contextmanager
def population(model: Any, size: int, indexes: list[Any]) -> Iterator[None]:
    """A table that holds the pyramid, and its triggers."""
    from django_zrank.capture.triggers import install

    with tables():
        table = connection.ops.quote_name(model._meta.db_table)
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY {table} (id, points, joined, region, platform) FROM STDIN") as copy:
                for person in stream(size):
                    copy.write_row(person)
            cursor.execute(f"VACUUM ANALYZE {table}")
        install("default", [index.instance() for index in indexes])
        yield


class Measurement:
    """Every operation on an index of one size."""

    def __init__(self, model: Any, indexes: list[Any], size: int, redis: Redis, only: str) -> None:
        from tests.scripts import every_script

        self.model, self.size, self.redis, self.only = model, size, redis, only
        self.plain, self.facets = indexes
        self.moved = min(MOVED, size // 2)
        self.names = {script.sha: script.name for script in every_script()}
        self.spans: dict[str, dict[str, Any]] = {}
        first = 10 ** len(str(size))
        self.pks = range(first, first + size)

    def run(self, server: int) -> dict[str, Any]:
        """Return the measurements of each operation, by its name. ``server``: the number of its process."""
        from django_zrank.sync.drain import drain
        from django_zrank.sync.rebuild import rebuild

        for index in (self.plain, self.facets):
            rebuild(index.instance())
            drain(index.instance())
        self.server = server
        self.redis.config_set("slowlog-log-slower-than", 200)
        self.redis.config_set("slowlog-max-len", 20_000)
        (other,) = start(self.redis, "ask")
        try:
            self.during("idle", lambda: time.sleep(LONG_ENOUGH))
            for name, prepare, operation in self.operations():
                if self.only in name:
                    prepare()
                    self.during(name, operation)
        finally:
            (waits,) = end(other)
        for span in self.spans.values():
            for question in ("PING", "recommend()"):
                found = [
                    (seconds, ran)
                    for asked, at, seconds, ran in waits
                    if asked == question and is_within(span, at, seconds)
                ]
                seconds, ran = (list(column) for column in zip(*found, strict=True))
                span[question] = {**percentiles(seconds), "asked": len(found), "processor": percentiles(ran)}
        self.report()
        return self.spans

    def operations(self) -> Iterator[tuple[str, Operation, Operation]]:
        """Names, what has to be done before, and what is measured."""
        from django_zrank.sync.drain import drain
        from django_zrank.sync.rebuild import rebuild
        from django_zrank.sync.verify import verify

        for name, ranked in (("plain", self.plain), ("facets", self.facets)):
            index, ranking = ranked.instance(), ranked.ranking
            yield f"{name}: rebuild", nothing, lambda index=index: rebuild(index)
            yield f"{name}: verify", nothing, lambda index=index: verify(index)
            yield f"{name}: drain, other scores", self.change_scores, lambda index=index: drain(index)
            self.settle()
            for read, operation in self.reads(ranking):
                yield f"{name}: {read}", nothing, repeat(operation)
        index = self.facets.instance()
        yield "facets: drain, moved between facets", self.change_facets, lambda: drain(index)
        self.settle()
        uncovered = self.facets.ranking.filter(region__in=REGIONS[:2]).exclude(platform=PLATFORMS[0])
        yield "uncovered: recommend(), 200 times", nothing, lambda: self.recommend(uncovered)
        yield "eight writers and an update()", nothing, self.write

    def reads(self, ranking: Any) -> Iterator[tuple[str, Operation]]:
        many = self.pks[:10_000]
        yield "ranks() of 10,000", lambda: ranking.ranks(many)
        yield "recommend_many() of 1,000", lambda: list(ranking.recommend_many(many[:1000], 1))

    def change_scores(self) -> None:
        from django.db.models import F

        self.model.objects.filter(pk__in=self.pks[:: self.size // self.moved]).update(points=F("points") + 1)

    def change_facets(self) -> None:
        for number, (region, platform) in enumerate(
            zip(cycle(REGIONS), islice(cycle(PLATFORMS), 24), strict=False)
        ):
            rows = self.model.objects.filter(pk__in=self.pks[number :: 24 * self.size // self.moved])
            rows.update(region=region, platform=platform)

    def settle(self) -> None:
        """Process the marks that an operation has left to the other index."""
        from django_zrank.sync.drain import drain

        for index in (self.plain, self.facets):
            drain(index.instance())

    def recommend(self, ranking: Any) -> None:
        for pk in self.pks[:: self.size // 200][:200]:
            ranking.recommend(pk)

    def write(self) -> dict[str, Any]:
        """Eight processes that save, one update() of a fifth of the rows, and a watcher."""
        from django.db.models import F

        from django_zrank.models import Mark

        marks = Mark.objects.filter(index__in=[index.instance().name for index in (self.plain, self.facets)])
        watcher, *writers = start(self.redis, "watch", *["save"] * WRITERS)
        most = 0
        self.model.objects.filter(pk__in=self.pks[::5]).update(points=F("points") + 1)
        updated = time.monotonic()
        while time.monotonic() < updated + 5 * LONG_ENOUGH:
            most = max(most, marks.count())
            time.sleep(0.1)
        left, saved, ended = marks.count(), sum(end(*writers)), time.monotonic()
        while marks.exists():
            time.sleep(0.02)
        return {
            "saved": saved,
            "marks, at most": most,
            "marks, in the end": left,
            "seconds until none was left": time.monotonic() - ended,
            "processed by the watcher": end(watcher)[0],
        }

    def during(self, name: str, operation: Operation) -> None:
        """Run an operation, and keep when it began and ended."""
        self.redis.slowlog_reset()
        time.sleep(0.1)  # It frees what it has, and the calls that come next take longer for that.
        self.redis.slowlog_reset()
        lost, began = queued(self.server), time.monotonic()
        told = operation()
        span = self.spans[name] = {"began": began, "ended": time.monotonic()}
        span["queued"] = queued(self.server) - lost
        if isinstance(told, dict):
            span["told"] = told
        slow: Any = self.redis.slowlog_get(20_000)
        span["longest"], span["call"] = max(
            (
                (entry["duration"] / 1e6, self.called(entry["command"]))
                for entry in slow
                if not entry["command"].startswith(b"SLOWLOG")
            ),
            default=(0.0, ""),
        )
        print(f"  {name}: {span['ended'] - began:.1f} s", flush=True)

    def called(self, command: bytes) -> str:
        """The name of a script, or the command."""
        verb, _, rest = command.decode(errors="replace").partition(" ")
        return self.names.get(rest.partition(" ")[0], verb) if verb.startswith("EVAL") else verb

    def report(self) -> None:
        print("\nms")
        heads = [("longest", 8), ("", 18), ("PING p50", 8), ("p99", 6), ("max", 6), ("processor p99", 14), ("max", 6), ("recommend() p50", 16), ("p99", 6), ("max", 6), ("processor p99", 14), ("max", 6), ("queued", 8)]  # fmt: skip  # noqa: E501
        print(" " * 38, *(f"{head:>{width}}" for head, width in heads))
        for name, span in self.spans.items():
            ping, recommend = span["PING"], span["recommend()"]
            waits = [
                seconds
                for one in (ping, recommend)
                for seconds in (
                    one["p50"], one["p99"], one["max"], one["processor"]["p99"], one["processor"]["max"]
                )
            ]  # fmt: skip
            values = [span["longest"], *waits, span["queued"]]
            widths = [width for head, width in heads if head]
            cells = [f"{1000 * value:{width}.1f}" for value, width in zip(values, widths, strict=True)]
            cells.insert(1, f"{span['call']:>18}")
            print(f"{name:38}", *cells)
            for what, value in span.get("told", {}).items():
                print(f"{'':38} {what}: {value:,.6g}")
        print(flush=True)


def nothing() -> None:
    pass


def repeat(operation: Operation) -> Operation:
    """An operation, again and again until it has taken long enough to be measured."""

    def run() -> None:
        until = time.monotonic() + LONG_ENOUGH
        while time.monotonic() < until:
            operation()

    return run


def is_within(span: dict[str, Any], at: float, seconds: float) -> bool:
    """True if a question waited while the operation ran."""
    return bool(at + seconds >= span["began"] and at <= span["ended"])


def plot(path: Path, name: str, measured: dict[str, dict[str, Any]]) -> None:
    """Draw the longest call of each operation, and what a PING waits while it runs: a panel for each title."""
    figure, panels = pyplot().subplots(
        1, len(measured), figsize=(7 * len(measured), 7), layout="constrained", sharey=True, squeeze=False
    )
    for panel, (title, spans) in zip(panels[0], measured.items(), strict=True):
        names = list(spans)[::-1]
        places = range(len(names))
        lines = {
            "longest call": [spans[name]["longest"] for name in names],
            "PING, p99": [spans[name]["PING"]["p99"] for name in names],
            "PING, longest wait": [spans[name]["PING"]["max"] for name in names],
        }
        for (label, seconds), marker in zip(lines.items(), "so|", strict=True):
            panel.plot([1000 * value for value in seconds], places, marker, label=label, markersize=9)
        panel.axvline(CEILING, color="grey", linestyle="--", label=f"{CEILING} ms")
        panel.set(xscale="log", xlabel="ms", title=title)
        panel.set_yticks(places, names)
        panel.grid(True, alpha=0.3)
        panel.xaxis.set_major_formatter("{x:,g}")
    panels[0][0].legend()
    figure.suptitle(name)
    figure.savefig(path, dpi=120)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
