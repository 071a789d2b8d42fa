"""A roll: ten drawn for a player by Redis and by SQL, each with the time it took, laid out on an axis of levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from .forms import RollForm
from .models import Player
from .showcase import WIDEN, Line
from .zrank import PlayerRank

__all__ = ["AUDIENCE", "Roll", "roll"]

Drawn = TypeVar("Drawn")

AUDIENCE = "audience"
"""The name of the audience's group."""


@dataclass(frozen=True)
class Dot:
    """An opponent on the axis: per cent of its width, and a lane so that names don't collide."""

    line: Line
    x: float
    lane: int
    difference: int

    @property
    def is_above(self) -> bool:
        return self.x > 50

    @property
    def points_inward(self) -> bool:
        """True if the name has room only towards the middle."""
        return not 25 <= self.x <= 75


@dataclass(frozen=True)
class Roll:
    """A draw: the members, their positions on the page, and the time that it took."""

    me: Line
    total: int
    below: int
    above: int
    candidates: int | None
    dots: list[Dot]
    ladder: list[Line]
    left_out: list[Player]
    redis: float
    sql: float
    statement: str

    @property
    def times(self) -> int:
        return round(self.sql / self.redis)

    @property
    def share(self) -> float:
        """The length of Redis's bar, in per cent of the longer one."""
        return max(0.6, min(100.0, 100 * self.redis / max(self.redis, self.sql)))

    @property
    def sql_share(self) -> float:
        return 100 * self.sql / max(self.redis, self.sql)

    @property
    def lanes(self) -> int:
        return 1 + max((dot.lane for dot in self.dots), default=0)

    @property
    def lowest(self) -> int:
        return self.me.level - self.below

    @property
    def highest(self) -> int:
        return self.me.level + self.above


def roll(player: Player, form: RollForm) -> Roll:
    """Draw ten near a player. Raises ``NotRanked`` and ``IndexUnavailable``."""
    band, region, audience = form.cleaned_data.get("band"), form.given("region"), form.given("audience")
    ranking = PlayerRank.ranking
    if region:
        ranking = ranking.filter(region=region)
    if audience:
        ranking = ranking.filter(group=AUDIENCE)
    exclude, seed = form.given("exclude") or [], form.given("seed")
    rank = PlayerRank.ranking.rank(player)

    drawn, redis = _timed(
        lambda: ranking.recommend(
            player, n=10, band=band, widen=WIDEN if band is None else (), exclude=exclude, seed=seed
        )
    )
    below, above = drawn.band

    rows = drawn.objects()
    # Filtered by region and audience, ranks are those in the region, or none: the page shows those among all.
    ranks = PlayerRank.ranking.ranks(rows)
    me = Line.of(player, rank)
    lines = sorted((Line.of(row, ranks[row.pk]) for row in rows if ranks[row.pk]), key=lambda line: line.rank)
    sql, statement = _by_sql(player, below, above, region, exclude)
    return Roll(
        me=me,
        total=PlayerRank.ranking.count(),
        below=below,
        above=above,
        candidates=drawn.candidates,
        dots=list(_dots(me, lines, below, above)),
        ladder=sorted([me, *lines], key=lambda line: line.rank),
        left_out=list(Player.objects.filter(pk__in=exclude)),
        redis=1000 * redis,
        sql=1000 * sql,
        statement=statement,
    )


def _by_sql(
    player: Player, below: int, above: int, region: str | None, exclude: list[int]
) -> tuple[float, str]:
    """Time the query that one would write without django-zrank. It returns no ranks, and ignores the audience."""
    near = Player.objects.filter(is_active=True, level__range=(player.level - below, player.level + above))
    if region:
        near = near.filter(region=region)
    near = near.exclude(pk__in=[player.pk, *exclude])
    near = near.exclude(pk__in=Player.objects.filter(friends=player).values("pk")).order_by("?")[:10]
    _, took = _timed(lambda: list(near.all()))
    return took, str(near.query)


def _timed(draw: Callable[[], Drawn]) -> tuple[Drawn, float]:
    """The last of three draws, and the seconds that the fastest took, which depend least on the machine's load."""
    times = []
    for _ in range(3):
        began = perf_counter()
        drawn = draw()
        times.append(perf_counter() - began)
    return drawn, min(times)


def _dots(me: Line, lines: list[Line], below: int, above: int):
    """Place lower levels to the left and higher ones to the right; those of the player's own level by rank."""
    span = max(below, above, 1)
    lanes = {True: 0, False: 0}
    for line in lines:
        ahead, difference = line.rank < me.rank, line.level - me.level
        x = 50 + 46 * difference / span
        x = max(x, 53.0) if ahead else min(x, 47.0)
        yield Dot(line, round(x, 2), lanes[ahead], difference)
        lanes[ahead] += 1
