"""The people that are measured: many at the lowest levels, few at the highest, as on a live system of 20 million."""

from __future__ import annotations

import random
from array import array
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

__all__ = ["PLATFORMS", "REGIONS", "Person", "build", "by_level", "stream"]

_LEVELS = ((1, 10, 22.1), (11, 20, 15.8), (21, 30, 8.0), (31, 3500, 54.1))
"""Lowest level, highest level, per cent of all: those of the demo."""

REGIONS = ("chubu", "chugoku", "hokkaido", "kansai", "kantou", "kyushu", "shikoku", "tohoku")
PLATFORMS = ("android", "ios", "pc", "ps", "switch", "xbox")
_NEWEST = datetime(2024, 6, 24, tzinfo=UTC)


class Person(NamedTuple):
    """One member."""

    pk: int
    points: int
    joined: datetime
    region: str
    platform: str


def build(size: int) -> list[Person]:
    """``size`` people in the order of their primary keys, the same ones every time.

    The keys have one number of digits, and whoever has the higher key joined earlier: so by points and then by
    date of joining, by points and then by key, and by points and then by key as text are all one order, and rivals
    that break ties in different ways must give the same answers.
    """
    return list(stream(size))


def stream(size: int) -> Iterator[Person]:
    """The people of ``build()`` one by one, where they need not all be in memory."""
    rng, first = random.Random(20240624), 10 ** len(str(size))
    shares = [share for *_, share in _LEVELS]
    for number, levels in enumerate(rng.choices(_LEVELS, shares, k=size)):
        yield Person(
            pk=first + number,
            points=_draw(rng, *levels),
            joined=_NEWEST - timedelta(seconds=number),
            region=rng.choice(REGIONS),
            platform=rng.choice(PLATFORMS),
        )


def _draw(rng: random.Random, lowest: int, highest: int, _share: float) -> int:
    """Evenly within ten levels; thinner towards the top where the span is long (even in the logarithm)."""
    if highest - lowest < 10:
        return rng.randint(lowest, highest)
    return int(lowest * ((highest + 1) / lowest) ** rng.random())


def by_level(size: int) -> Iterator[tuple[int, int]]:
    """Primary key and level of ``size`` members, lowest level first, the same ones every time.

    Tens of millions fit: it holds 4 bytes a member. The keys have 8 digits at every size, so that a member takes the
    same space at each.
    """
    rng, shares = random.Random(20240624), [share for *_, share in _LEVELS]
    holds: dict[int, array[int]] = defaultdict(lambda: array("I"))
    for first in range(0, size, 100_000):
        spans = rng.choices(_LEVELS, shares, k=min(100_000, size - first))
        for number, span in enumerate(spans, 10_000_000 + first):
            holds[_draw(rng, *span)].append(number)
    for level in sorted(holds):
        for pk in holds.pop(level):
            yield pk, level
