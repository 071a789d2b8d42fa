"""Rivals in one run: interleaved, many rounds, medians with their range, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

__all__ = ["compare", "report"]


def compare(rivals: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each rival: one call of each in turn, ``rounds`` times, after a warm-up of a tenth."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(-(rounds // 10), rounds):
        for name, rival in rivals.items():
            began = perf_counter()
            rival()
            taken = perf_counter() - began
            if number >= 0:
                seconds[name].append(taken)
    return seconds


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
