"""An audience that players join and leave: a group, which is in Redis only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .models import Player, Region
from .rolls import AUDIENCE
from .zrank import PlayerRank

SOME = 200
STAY = timedelta(minutes=10)


@dataclass(frozen=True)
class House:
    """The audience and its regions."""

    size: int
    regions: list[tuple[str, int, float]]
    """Name, number of players, and that number in per cent of the largest region's."""


def count() -> House:
    """Count the audience by region. The counts may be five seconds old: combined filters are kept that long."""
    group = PlayerRank.group(AUDIENCE)
    size = group.count()
    counts = PlayerRank.ranking.filter(group=AUDIENCE).counts("region") if size else {}
    most = max(counts.values(), default=1)
    return House(
        size,
        [(label, counts.get(value, 0), 100 * counts.get(value, 0) / most) for value, label in Region.choices],
    )


def join() -> str:
    """Add some random players to the audience."""
    players = Player.objects.filter(is_active=True).order_by("?")[:SOME]
    added = PlayerRank.group(AUDIENCE).add(players, expires=STAY)
    return f"{added} players joined the audience for ten minutes."


def leave() -> str:
    """Remove half of the audience."""
    players = PlayerRank.ranking.filter(group=AUDIENCE).top(10_000)
    gone = PlayerRank.group(AUDIENCE).remove(entry.pk for entry in players[::2])
    return f"{gone} players left the audience."
