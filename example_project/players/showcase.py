"""The demo's scenes: three players, ten opponents for each, and a level that changes."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from random import Random, SystemRandom

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import CharField, F
from django.db.models.functions import Abs, Cast

from django_zrank import Entries, IndexUnavailable, NotRanked, Ranking
from django_zrank.registry import registry
from django_zrank.sync.health import examine

from .models import Player
from .zrank import PlayerRank

CAST = ("lowest", "middle", "highest")
"""User names of the three players whose opponents the command prints."""

NEWCOMER = "newcomer"
"""The user name of a player of low level, like a third of all players."""

PLAYABLE = (NEWCOMER, *CAST)
"""User names of the players that a visitor can play as."""

WIDEN = (25, 100, 400, 1600)
"""Bands to try if there are fewer than ten players within ten levels: at the top, or in a small population."""

CROWDED = 10
"""The level of the newcomer."""

FRIENDS = 5

GAIN = 3
"""Levels that the winner of a match gains."""


@dataclass(frozen=True)
class Line:
    """One player as a line of a table."""

    rank: int
    pk: int
    name: str
    level: int
    region: str

    @classmethod
    def of(cls, player: Player, rank: int) -> Line:
        return cls(rank, player.pk, player.name, player.level, player.get_region_display())


@dataclass(frozen=True)
class Scene:
    """A player and ten opponents nearby, best rank first."""

    role: str
    player: Line
    band: tuple[float, float]
    candidates: int | None
    opponents: list[Line]

    def ladder(self) -> list[Line]:
        """The opponents with the player among them, best first."""
        return sorted([self.player, *self.opponents], key=attrgetter("rank"))


@dataclass(frozen=True)
class LevelChange:
    """The effect of a ``save()``. Pairs are (before, after); a rank is None if it is unknown."""

    pk: int
    name: str
    level: tuple[int, int]
    rank: tuple[int | None, int | None]


def is_lost(name: str = "player") -> bool:
    """Return True if the index was never built, or its server was emptied."""
    return examine(registry.get(name)).wants_rebuild


def is_complete() -> bool:
    """Return True if the index has as many members as there are rows to rank."""
    try:
        return PlayerRank.ranking.count() == PlayerRank.instance().get_ranked().count()
    except IndexUnavailable:
        return False


@transaction.atomic
def cast_players() -> dict[str, Player]:
    """Return the players of the lowest, the middle and the highest level, each with a user of that name and friends.

    If a player has at least the newcomer's level, there is a newcomer, too. Levels change from run to run, so the
    users are assigned anew each time.
    """
    # From the last rank to the first: the index orders equal levels by the primary key as text.
    ranked = PlayerRank.instance().get_ranked().order_by("level", Cast("pk", CharField()))
    total = ranked.count()
    players = {role: ranked[place] for role, place in zip(CAST, (0, total // 2, total - 1), strict=True)}
    Player.objects.filter(user__username__in=PLAYABLE).update(user=None)
    others = ranked.filter(level__gte=CROWDED).exclude(pk__in=[player.pk for player in players.values()])
    newcomer = others.first()
    for role, player in [*players.items(), *([(NEWCOMER, newcomer)] if newcomer else [])]:
        player.user, _ = get_user_model().objects.get_or_create(username=role)
        player.save(update_fields=["user"])
        if not player.friends.exists():
            player.friends.set(_neighbours(player))
    return players


def lines_of(entries: Entries[Player]) -> list[Line]:
    """The rows of members, as lines."""
    ranks = {entry.pk: entry.rank for entry in entries}
    return [Line.of(player, ranks[player.pk]) for player in entries.objects()]


def rank_of(player: Player, ranking: Ranking[Player] = PlayerRank.ranking) -> int | None:
    """The rank; None if there is none, or Redis can't be reached, which doesn't keep a level from being saved."""
    try:
        return ranking.rank(player)
    except (IndexUnavailable, NotRanked):
        return None


def show(role: str, player: Player, *, n: int = 10) -> Scene:
    """Draw ``n`` opponents for the player. Raises ``NotRanked`` and ``IndexUnavailable``."""
    drawn = PlayerRank.ranking.recommend(player, n=n, widen=WIDEN)
    return Scene(
        role=role,
        player=Line.of(player, PlayerRank.ranking.rank(player)),
        band=drawn.band,
        candidates=drawn.candidates,
        opponents=lines_of(drawn),
    )


def change_level(player: Player, by: int) -> LevelChange:
    """Raise the player's level by an ordinary ``save()``, which updates the index after the commit."""
    rank = rank_of(player)
    # The row is read again and locked, where the database can, so that two clicks gain two levels.
    with transaction.atomic():
        current = Player.objects.select_for_update().get(pk=player.pk)
        level = current.level
        current.level += by
        current.save()
    return LevelChange(current.pk, current.name, (level, current.level), (rank, rank_of(current)))


def play_match(player: Player, opponent: Player) -> str:
    """Play a match, save both levels in one transaction, and describe the result. The probability of a win is Elo's."""
    before = rank_of(player)
    with transaction.atomic():
        # In one order, so that two matches at once don't deadlock.
        rows = Player.objects.select_for_update().order_by("pk").filter(pk__in=[player.pk, opponent.pk])
        both = {row.pk: row for row in rows}
        me, other = both[player.pk], both[opponent.pk]
        chance = 1 / (1 + 10 ** ((other.level - me.level) / 400))
        won = SystemRandom().random() < chance
        winner, loser = (me, other) if won else (other, me)
        winner.level += GAIN
        loser.level = max(1, loser.level - 1)
        winner.save()
        loser.save()
    after = rank_of(me)
    told = f"You {'beat' if won else 'lost to'} {other.name}: level {player.level:,} → {me.level:,}"
    return f"{told}, rank {before:,} → {after:,}." if before and after else f"{told}."


def _neighbours(player: Player) -> list[Player]:
    """Choose some players of similar levels to be friends, whom ``recommend()`` excludes."""
    nearest = Player.objects.exclude(pk=player.pk).order_by(Abs(F("level") - player.level), "pk")[
        : FRIENDS * 10
    ]
    return Random(player.pk).sample(list(nearest), min(FRIENDS, len(nearest)))
