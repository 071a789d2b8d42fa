"""Rates of a rebuild from PostgreSQL and of a verification, beside ``redis-cli --pipe`` with the same rows.

``python -m tests.benchmarks.rebuild [--members N,N,…] [--rounds N] [--batch-size N] [--json FILE] [--plot FILE.png]``,
on a private PostgreSQL, or on the one that ``ZRANK_TEST_DATABASE`` and the variables beside it name.

The table is filled by COPY. The rival sends a file made beforehand, a ZADD for each row in the order of the table:
what it costs to read the database and to write the file is not counted. Each load goes into a server started for it.
A rebuild, and the verification after it, run each in a process of its own, as a command does, and are timed there,
without Python's start. *Peak* is the most memory that the process ever held. Of more than a million members there are
fewer rounds, so that each size takes about as long.

``--facets`` compares an index of one criterion with one of two criteria, two facets and their composite, both of one
table, in turns: seconds of a rebuild and of a verification, and of the processors. ``--shards 16`` compares an index of
one criterion with the same in so many shards, on the same server. ``--by-hand`` compares a rebuild with a loop of
``fetchmany()`` and redis-py's ``zadd()`` over the same rows. Ratios are of the clock, then of the processor: of Python,
then of Python and Redis together.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import Any, NamedTuple

import django
from django.conf import settings
from django.db import connection
from redis import Redis

from tests.benchmarks.beside import declare
from tests.benchmarks.hold import population as population_of_both
from tests.benchmarks.options import parse_options
from tests.benchmarks.plots import over_members, pyplot
from tests.benchmarks.pyramid import stream
from tests.benchmarks.rounds import figures, report_rates, save
from tests.benchmarks.servers import PATIENT, busy, django_on_postgresql, environment, redis_server, tables

INDEX = "ascending"
PIPE = "redis-cli --pipe"

LOOPED = 5000
"""Rows of each ``fetchmany()`` and ``zadd()`` of the loop."""


class Run(NamedTuple):
    """One load, or one verification."""

    seconds: float
    cpu: float
    """Seconds of the processor in the process itself."""

    server: float
    """Seconds of the processor in the Redis server."""

    peak: float
    """MB; 0 where nobody looked."""


def main() -> int:
    sizes: dict[str, Any] = {"members": (1_000_000,), "rounds": 5, "batch_size": int}
    variants: dict[str, Any] = {
        "facets": False,
        "shards": int,
        "by_hand": False,
        "index": INDEX,
        "step": "",
    }
    options = parse_options(__doc__, **sizes, **variants, plot=Path)
    if options.step:  # we are the process that is measured
        step(options.step, options.index, options.batch_size, options.shards)
        return 0
    if options.plot:
        pyplot()
    client = shutil.which("redis-cli") or shutil.which("valkey-cli")
    compares = options.facets or options.shards or options.by_hand
    if (client is None and not compares) or find_spec("psycopg") is None:
        print("Needs redis-cli or valkey-cli, and pip install psycopg[binary]")
        return 0
    with django_on_postgresql() as is_ready:
        if not is_ready:
            return 0
        if compares:
            over = over_one_shard if options.shards else over_plain if options.facets else over_a_loop
            measured = {size: over(size, options) for size in options.members}
            save(options, sizes=measured)
            return 0
        assert client
        measured = {size: at(size, client, options) for size in options.members}
    name = f"{measured[max(measured)]['server']}, {connection.display_name}"
    save(options, sizes=measured)
    if options.plot:
        plot(options.plot, name, measured)
    return 0


def at(size: int, client: str, options: argparse.Namespace) -> dict[str, Any]:
    """Compare a rebuild and a verification of ``size`` members with the pipe."""
    rounds = max(1, options.rounds * 1_000_000 // max(size, 1_000_000))
    with population(size) as commands:
        name, runs = measure(client, commands, size, rounds, options.batch_size)
    print(f"{name}, {connection.display_name}, {size:,} members, {rounds:,} rounds")
    rates = {title: [size / run.seconds for run in each] for title, each in runs.items()}
    report_rates(rates, PIPE, "rows")
    print(f"\n{'medians':16} {'CPU of it':>10} {'of Redis':>10} {'peak':>8}")
    for title, each in runs.items():
        _, cpu, server_cpu, peak = map(statistics.median, zip(*each, strict=True))
        print(f"{title:16} {cpu:8.2f} s {server_cpu:8.2f} s" + (f" {peak:5.0f} MB" if peak else ""))
    print(flush=True)
    return {
        "server": name,
        "rounds": rounds,
        "rates": figures(rates, PIPE),
        "runs": {title: [run._asdict() for run in each] for title, each in runs.items()},
    }


def over_plain(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Compare an index with facets with one without, of ``size`` members."""
    model, indexes = declare()
    variants = {name: [f"--index={name}"] for name in (index.instance().name for index in indexes)}
    with population_of_both(model, size, indexes):
        return in_turns(variants, size, options)


def over_one_shard(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Compare an index with shards with one without, of ``size`` members."""
    variants = {f"{count} shards": [f"--shards={count}"] for count in (1, options.shards)}
    with population(size):
        return in_turns(variants, size, options)


def over_a_loop(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Compare a rebuild of ``size`` members with a loop, as one would write it by hand."""
    variants = {"by hand": ["--step=loop"], "django-zrank": []}
    with population(size):
        return in_turns(variants, size, options, ("rebuild",))


def in_turns(
    variants: Mapping[str, Sequence[str]],
    size: int,
    options: argparse.Namespace,
    steps: Sequence[str] = ("rebuild", "verify"),
) -> dict[str, Any]:
    """Rebuild and verify variants in turns: arguments of a step, by their titles. All are compared with the first."""
    first, *_ = titles = [*variants]
    runs: dict[str, list[Run]] = {f"{what}, {title}": [] for what in steps for title in titles}
    rng = random.Random(1)
    for _ in range(options.rounds):
        rng.shuffle(titles)
        for title in titles:
            with redis_server() as (redis, server):
                for what in steps:
                    before = busy(redis)
                    found = ours(what, redis, options.batch_size, *variants[title])
                    run = Run(**found, server=busy(redis) - before)
                    runs[f"{what}, {title}"].append(run)
                    print(f"{what}, {title}: {run.seconds:.2f} s", flush=True)
    print(f"{server}, {connection.display_name}, {size:,} members, {options.rounds:,} rounds, medians")
    medians = {title: Run(*map(statistics.median, zip(*each, strict=True))) for title, each in runs.items()}
    for title, (seconds, cpu, server_cpu, peak) in medians.items():
        base = medians[f"{title.partition(',')[0]}, {first}"]
        together = (cpu + server_cpu) / (base.cpu + base.server)
        print(
            f"{title:22} {seconds:8.2f} s {cpu:8.2f} s of Python {server_cpu:8.2f} s of Redis "
            f"{peak:5.0f} MB {seconds / base.seconds:6.2f} {cpu / base.cpu:6.2f} {together:6.2f}"
        )
    return {title: [run._asdict() for run in each] for title, each in runs.items()}


def plot(path: Path, name: str, measured: Mapping[int, Mapping[str, Any]]) -> None:
    """Draw the rates, and what memory it takes, against members."""
    sizes = sorted(measured)
    figure, (rates, memory) = pyplot().subplots(1, 2, figsize=(11, 5), layout="constrained")
    for title in (PIPE, "rebuild", "verify"):
        found = [measured[size]["rates"][title] for size in sizes]
        medians = [each["median"] for each in found]
        ends = [[one["median"] - one["min"] for one in found], [one["max"] - one["median"] for one in found]]
        rates.errorbar(sizes, medians, ends, label=title, marker="o", capsize=3)
        if title != PIPE:
            peaks = [
                statistics.median(run["peak"] for run in measured[size]["runs"][title]) for size in sizes
            ]
            memory.plot(
                sizes, peaks, label=title, marker="o", color=rates.containers[-1].lines[0].get_color()
            )
    over_members(rates, sizes, "Rate, median, least and highest")
    over_members(memory, sizes, "Most memory that the command held")
    rates.set(ylabel="rows a second", ylim=(0, 1.2 * rates.get_ylim()[1]))
    memory.set(ylabel="MB", ylim=(0, 1.4 * memory.get_ylim()[1]))
    rates.legend()
    memory.legend()
    figure.suptitle(name)
    figure.savefig(path, dpi=120)
    print(path)


@contextmanager
def population(size: int) -> Iterator[Path]:
    """A table that holds the pyramid, and a file of the commands that put the same rows into a sorted set."""
    with tempfile.TemporaryDirectory(prefix="zrank-bench-") as folder, tables():
        commands = Path(folder) / "commands"
        began = perf_counter()
        with connection.cursor() as cursor, commands.open("wb") as file:
            cursor.execute("SET session_replication_role = replica")  # no marks: nothing is built yet
            columns = "id, name, level, bio, is_active"
            with cursor.copy(f"COPY testapp_player ({columns}) FROM STDIN") as copy:
                for people in batches(size):
                    copy.write("".join(f"{pk}\t\t{points}\t{'x' * 100}\tt\n" for pk, points in people))
                    file.writelines(zadd(pk, points) for pk, points in people)
            cursor.execute("RESET session_replication_role")
            cursor.execute("VACUUM ANALYZE testapp_player")
        print(f"{size:,} rows were made in {perf_counter() - began:.0f} s", flush=True)
        yield commands


def batches(size: int) -> Iterator[list[tuple[int, int]]]:
    """Primary keys and points of all."""
    people = ((person.pk, person.points) for person in stream(size))
    while batch := list(islice(people, 10_000)):
        yield batch


def zadd(pk: int, points: int) -> bytes:
    """The command, as it goes over the wire."""
    return b"*4\r\n$4\r\nZADD\r\n$4\r\nbare\r\n" + _word(points) + _word(pk)


def _word(number: int) -> bytes:
    return b"$%d\r\n%d\r\n" % (len(str(number)), number)


def measure(
    client: str, commands: Path, size: int, rounds: int, batch_size: int | None
) -> tuple[str, dict[str, list[Run]]]:
    """Return the name of the Redis server, and every run."""
    runs: dict[str, list[Run]] = {PIPE: [], "rebuild": [], "verify": []}
    turns, rng = [True, False], random.Random(1)
    for _ in range(rounds):
        rng.shuffle(turns)
        for is_ours in turns:
            with redis_server() as (redis, name):
                if is_ours:
                    steps = {
                        "rebuild": lambda: ours("rebuild", redis, batch_size),
                        "verify": lambda: ours("verify", redis, batch_size),
                    }
                else:
                    steps = {PIPE: lambda: pipe(client, commands, redis)}
                for title, run in steps.items():
                    before = busy(redis)
                    figures = run()
                    runs[title].append(Run(**figures, server=busy(redis) - before))
                    print(f"{title}: {size / figures['seconds']:,.0f} a second", flush=True)
                held = {redis.zcard(key) for key in redis.scan_iter(_type="zset")}
                if held != {size}:
                    raise SystemExit(f"{title}: the server holds {held}")
    return name, runs


def pipe(client: str, commands: Path, redis: Redis) -> dict[str, float]:
    """Load the commands of a file."""
    before, began = getrusage(RUSAGE_CHILDREN), perf_counter()
    with commands.open("rb") as file:
        port = str(redis.connection_pool.connection_kwargs["port"])
        ended = subprocess.run([client, "-p", port, "--pipe"], stdin=file, stdout=subprocess.PIPE)
    seconds, after = perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    if ended.returncode or b"errors: 0," not in ended.stdout:
        raise SystemExit(f"{PIPE}: {ended.stdout!r}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu, "peak": 0}


def ours(what: str, redis: Redis, batch_size: int | None, *arguments: str) -> dict[str, float]:
    """Run a step in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.rebuild", f"--step={what}", *arguments]
    if batch_size:
        command.append(f"--batch-size={batch_size}")
    ended = subprocess.run(command, env=environment(redis), stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def step(what: str, name: str, batch_size: int | None, shards: int | None) -> None:
    """Rebuild or verify in this process, and print what it took."""
    django.setup()
    settings.CACHES["zrank"]["OPTIONS"] = PATIENT
    from django_zrank.registry import registry
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.sync.verify import verify

    if name != INDEX:
        declare()
    (index,) = registry.named([name])
    if shards:
        type(index).shards = shards
        vars(index).pop("parts", None)
    sizes = {"batch_size": batch_size} if batch_size else {}
    began, cpu = perf_counter(), process_time()
    if what == "loop":
        loop(index)
    elif what == "rebuild":
        rebuild(index, **sizes)
    else:
        report = verify(index)
        if report.drift or not report.compared:
            raise SystemExit(f"verify: {report}")
    took = {"seconds": perf_counter() - began, "cpu": process_time() - cpu}
    print(json.dumps(took | {"peak": peak()}))


def loop(index: Any) -> None:
    """Fill a sorted set with what an index ranks."""
    client: Redis = Redis.from_url(settings.CACHES["zrank"]["LOCATION"])
    statement = index.get_ranked().values_list("pk", *index.ordering.paths).query
    with connection.cursor() as cursor:
        cursor.execute(*statement.sql_with_params())
        while rows := cursor.fetchmany(LOOPED):
            client.zadd("bare", dict(rows))


def peak() -> float:
    """The most memory that this process ever held, in MB. ``getrusage()`` may return its parent's, from before
    exec()."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
