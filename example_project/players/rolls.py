"""A roll: ten opponents drawn for a player, laid out on an axis of levels; and the time that SQL takes for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from django.db.models import QuerySet

from django_zrank import Recommendations

from .forms import RollForm
from .models import Player, Region
from .showcase import WIDEN, Line
from .zrank import PlayerRank

Result = TypeVar("Result")

AUDIENCE = "audience"
"""The name of the audience's group."""

REACH = 38.0
"""Per cent of the axis from its middle to the end of the band. The rest is room for the levels beside the dots."""


@dataclass(frozen=True)
class Dot:
    """An opponent on the axis, at ``x`` per cent of its width."""

    line: Line
    x: float
    is_above: bool

    @property
    def distance(self) -> float:
        return round(abs(self.x - 50), 2)


@dataclass(frozen=True)
class Roll:
    """A draw, the positions of those drawn on the page, and the milliseconds that it took."""

    me: Line
    total: int
    below: int
    above: int
    drawn_from: str
    dots: list[Dot]
    left_out: list[Player]
    milliseconds: float

    @property
    def ladder(self) -> list[Line]:
        """The opponents and the player, best rank first."""
        return sorted([self.me, *(dot.line for dot in self.dots)], key=lambda line: line.rank)

    @property
    def reach(self) -> str:
        if self.below != self.above:
            return f"within {self.below:,} levels below and {self.above:,} above"
        if not self.below:
            return "at the same level"
        return f"within {self.below:,} level{'' if self.below == 1 else 's'}"

    @property
    def rank_above(self) -> int:
        return sum(dot.is_above for dot in self.dots)

    @property
    def rank_below(self) -> int:
        return len(self.dots) - self.rank_above

    @property
    def nearest(self) -> Line | None:
        """The opponent whose rank is nearest to the player's."""
        lines = (dot.line for dot in self.dots)
        return min(lines, key=lambda line: abs(line.rank - self.me.rank), default=None)

    @property
    def ticks(self) -> Iterator[tuple[int, float]]:
        """Yield levels to be marked on the axis, with their positions."""
        span = max(self.below, self.above, 1)
        step = next(step for step in _steps() if 2.5 * step >= span)
        first = -(-max(1, self.me.level - self.below) // step) * step
        for level in range(first, self.me.level + self.above + 1, step):
            yield level, _x(level - self.me.level, span)


@dataclass(frozen=True)
class Race:
    """The same question to django-zrank and to SQL: the milliseconds of each."""

    redis: float
    sql: float
    statement: str

    @property
    def times(self) -> float:
        return self.sql / self.redis

    @property
    def share(self) -> float:
        """The length of django-zrank's bar, in per cent of the longer one."""
        return max(0.6, 100 * self.redis / max(self.redis, self.sql))

    @property
    def sql_share(self) -> float:
        return max(0.6, 100 * self.sql / max(self.redis, self.sql))


@dataclass(frozen=True)
class Comparison:
    """Drawing ten players with their rows, None if SQL can't; and counting a rank."""

    draw: Race | None
    rank: Race

    bare: float
    """The milliseconds of the draw alone, which answers primary keys, scores and ranks."""


def roll(player: Player, form: RollForm) -> Roll:
    """Draw ten near a player. Raises ``NotRanked`` and ``IndexUnavailable``."""
    rank = PlayerRank.ranking.rank(player)
    began = perf_counter()
    drawn = _draw(player, form)
    rows = drawn.objects()
    took = perf_counter() - began
    # Filtered by region and audience, ranks are those in the region, or none: the page shows those among all.
    ranks = PlayerRank.ranking.ranks(rows)
    me = Line.of(player, rank)
    lines = sorted((Line.of(row, ranks[row.pk]) for row in rows if ranks[row.pk]), key=lambda line: line.rank)
    below, above = drawn.band
    return Roll(
        me=me,
        total=PlayerRank.ranking.count(),
        below=below,
        above=above,
        drawn_from=_scope(form, drawn.candidates),
        dots=list(_dots(me, lines, max(below, above, 1))),
        left_out=list(Player.objects.filter(pk__in=form.given("exclude") or [])),
        milliseconds=1000 * took,
    )


def compare(player: Player, form: RollForm) -> Comparison:
    """Time the roll, and the player's rank, against the SQL that one would write without django-zrank.

    Both sides return rows. Groups are not in the database: with an audience, there is no SQL to draw by.
    Raises ``NotRanked`` and ``IndexUnavailable``.
    """
    below, above = _draw(player, form).band
    draw = None
    if not form.given("audience"):
        near = _near(player, form, below, above)
        draw = Race(
            _timed(lambda: _draw(player, form).objects()), _timed(lambda: list(near.all())), str(near.query)
        )
    better = Player.objects.filter(is_active=True, level__gt=player.level)
    _, _, rest = str(better.query).partition(" FROM ")
    rank = Race(
        _timed(lambda: PlayerRank.ranking.rank(player)), _timed(better.count), f"SELECT COUNT(*) FROM {rest}"
    )
    return Comparison(draw, rank, _timed(lambda: _draw(player, form)))


def _draw(player: Player, form: RollForm) -> Recommendations[Player]:
    band, region = form.cleaned_data.get("band"), form.given("region")
    ranking = PlayerRank.ranking
    if region:
        ranking = ranking.filter(region=region)
    if form.given("audience"):
        ranking = ranking.filter(group=AUDIENCE)
    return ranking.recommend(
        player,
        n=10,
        band=band,
        widen=WIDEN if band is None else (),
        exclude=form.given("exclude") or [],
        seed=form.given("seed"),
    )


def _near(player: Player, form: RollForm, below: int, above: int) -> QuerySet[Player]:
    """The query for ten random players of the band. It doesn't balance those above and below."""
    near = Player.objects.filter(is_active=True, level__range=(player.level - below, player.level + above))
    if region := form.given("region"):
        near = near.filter(region=region)
    near = near.exclude(pk__in=[player.pk, *(form.given("exclude") or [])])
    return near.exclude(pk__in=Player.objects.filter(friends=player).values("pk")).order_by("?")[:10]


def _timed(query: Callable[[], Result]) -> float:
    """The milliseconds of the fastest of 3 to 20 runs in about a tenth of a second: it depends least on the load."""
    times: list[float] = []
    while len(times) < 3 or (len(times) < 20 and sum(times) < 100):
        began = perf_counter()
        query()
        times.append(1000 * (perf_counter() - began))
    return min(times)


def _scope(form: RollForm, candidates: int | None) -> str:
    """Describe those that were drawn from: "4,504 players from Kanto in the audience"."""
    scope = "the players" if candidates is None else f"{candidates:,} player{'' if candidates == 1 else 's'}"
    if region := form.given("region"):
        scope += f" from {Region(region).label}"
    return scope + (" in the audience" if form.given("audience") else "")


def _dots(me: Line, lines: list[Line], span: int) -> Iterator[Dot]:
    """Place lower levels to the left and higher ones to the right; those of the player's own level by rank."""
    for line in lines:
        is_above, x = line.rank < me.rank, _x(line.level - me.level, span)
        yield Dot(line, max(x, 52.5) if is_above else min(x, 47.5), is_above)


def _x(difference: int, span: int) -> float:
    return round(50 + REACH * difference / span, 2)


def _steps() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50, ..."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10
