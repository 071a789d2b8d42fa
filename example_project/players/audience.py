"""An audience that joins and leaves: a group, kept in Redis only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .models import Player, Region
from .rolls import AUDIENCE
from .zrank import PlayerRank

__all__ = ["House", "count", "join", "leave"]

SOME = 200
STAY = timedelta(minutes=10)


@dataclass(frozen=True)
class House:
    """The audience and its regions."""

    size: int
    regions: list[tuple[str, int, float]]
    """Name, number of people, and that number in per cent of the largest region's."""


def count() -> House:
    """Counts by region. They may be five seconds old: intersections are kept that long."""
    group = PlayerRank.group(AUDIENCE)
    size = group.count()
    counts = PlayerRank.ranking.filter(group=AUDIENCE).counts("region") if size else {}
    most = max(counts.values(), default=1)
    return House(
        size,
        [(label, counts.get(value, 0), 100 * counts.get(value, 0) / most) for value, label in Region.choices],
    )


def join() -> str:
    people = Player.objects.filter(is_active=True).order_by("?")[:SOME]
    added = PlayerRank.group(AUDIENCE).add(people, expires=STAY)
    return f"{added} people joined the audience, for ten minutes."


def leave() -> str:
    """Make half of the audience leave."""
    people = PlayerRank.ranking.filter(group=AUDIENCE).top(10_000)
    gone = PlayerRank.group(AUDIENCE).remove(entry.pk for entry in people[::2])
    return f"{gone} people left."
