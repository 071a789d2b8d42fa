"""Rivals in one run: interleaved, many rounds, medians with their range, ratios."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import statistics
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

__all__ = ["compare", "count_calls", "figures", "percentiles", "report", "report_rates", "save"]


def compare(
    rivals: Mapping[str, Callable[[], Any]],
    rounds: int,
    limit: float | None = None,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """Seconds a call of each rival: one call of each in turn, ``rounds`` times, after a warm-up of a tenth.

    The turns are in another order each round: whoever comes after the heaviest finds the processor's caches cold.
    ``limit``: seconds after which a rival drops out; it has three turns at least.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    spent = dict.fromkeys(rivals, 0.0)
    turns, rng = list(rivals.items()), random.Random(1)
    for number in range(-(rounds // 10), rounds):
        rng.shuffle(turns)
        for name, rival in turns:
            if limit is not None and spent[name] > limit and (number < 0 or len(seconds[name]) >= 3):
                continue
            began = clock()
            rival()
            taken = clock() - began
            spent[name] += taken
            if number >= 0:
                seconds[name].append(taken)
    return seconds


def count_calls(call: Callable[[], Any], clients: int, seconds: float) -> int:
    """Return the number of calls that ``clients`` processes make in ``seconds``, each one call after the other.

    The processes are forked, and begin together, after a call that isn't counted.
    """
    fork = multiprocessing.get_context("fork")
    counts, barrier = fork.SimpleQueue(), fork.Barrier(clients)

    def work() -> None:
        call()
        barrier.wait()
        done, end = 0, perf_counter() + seconds
        while perf_counter() < end:
            call()
            done += 1
        counts.put(done)

    processes = [fork.Process(target=work) for _ in range(clients)]
    for process in processes:
        process.start()
    total = sum(counts.get() for _ in processes)
    for process in processes:
        process.join()
    return total


def report(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """Print each rival's median, minimum and maximum in microseconds and its ratio to ``base``."""
    width = max(map(len, seconds))
    unit = statistics.median(seconds[base])
    ratios = {name: statistics.median(taken) / unit for name, taken in seconds.items()}
    print(f"{'':{width}}  {'median':>9} {'min':>9} {'max':>9}  ratio")
    for name, taken in seconds.items():
        figures = (statistics.median(taken), min(taken), max(taken))
        print(f"{name:{width}}  " + " ".join(f"{s * 1e6:6.0f} µs" for s in figures) + f"  {ratios[name]:.2f}")
    return ratios


def report_rates(rates: Mapping[str, list[float]], base: str, unit: str) -> None:
    """Print the median, least and highest rate of each rival, in units a second, and its ratio to ``base``."""
    width = max(map(len, rates))
    print(f"{unit + ' a second':{width}}  {'median':>9} {'min':>9} {'max':>9}  ratio")
    for name, each in figures(rates, base).items():
        shown = " ".join(f"{each[figure]:9,.0f}" for figure in ("median", "min", "max"))
        print(f"{name:{width}}  {shown}  {each['ratio']:.2f}")


def figures(seconds: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Return the figures that ``report()`` prints, in seconds, for a file; of rates, those of ``report_rates()``."""
    unit = statistics.median(seconds[base])
    return {
        name: {
            "median": statistics.median(taken),
            "min": min(taken),
            "max": max(taken),
            "ratio": statistics.median(taken) / unit,
        }
        for name, taken in seconds.items()
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median, the 99th percentile and the maximum."""
    found = sorted(seconds)
    return {"p50": found[len(found) // 2], "p99": found[len(found) * 99 // 100], "max": found[-1]}


def save(options: Namespace, **measured: Any) -> None:
    """Write what was measured to the file that ``--json`` names, with what else decides how fast a machine is."""
    if options.json:
        found = {"cores": os.cpu_count(), "load": os.getloadavg(), "options": vars(options), **measured}
        options.json.write_text(json.dumps(found, indent=2, default=str) + "\n")
