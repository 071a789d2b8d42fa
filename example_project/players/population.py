"""Generates the players of the arena: as many as asked for, the same ones every time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from django.db import transaction

from django_zrank.testing import disable_sync

from .models import Player, Region

LEVELS = ((1, 10, 22.1), (11, 20, 15.8), (21, 30, 8.0), (31, 3500, 54.1))
"""Lowest level, highest level, per cent of all players: measured on a live system of 20 million users."""

SEED = 20240624
BATCH = 10_000

_BEGINNINGS = (
    "Al",
    "Bel",
    "Cor",
    "Dan",
    "El",
    "Fen",
    "Gar",
    "Hel",
    "Is",
    "Jor",
    "Kal",
    "Lor",
    "Mir",
    "Nor",
    "Ros",
)
_ENDINGS = (
    "a",
    "ana",
    "ard",
    "en",
    "eth",
    "ia",
    "iel",
    "in",
    "ion",
    "is",
    "o",
    "ora",
    "ric",
    "us",
    "wen",
    "yn",
)
_HALVES = (
    "Amber",
    "Ash",
    "Bright",
    "Cloud",
    "Dusk",
    "Fern",
    "Frost",
    "Gold",
    "Iron",
    "Night",
    "Oak",
    "Salt",
    "Thorn",
)
_OTHERS = (
    "brook",
    "field",
    "fire",
    "foot",
    "hand",
    "heart",
    "leaf",
    "light",
    "mantle",
    "moor",
    "song",
    "spear",
)


def draw_players() -> Iterator[Player]:
    """Yield unsaved players without end. The i-th is the same in every run."""
    random = Random(SEED)
    shares = [share for *_, share in LEVELS]
    regions = Region.values
    while True:
        lowest, highest, _ = random.choices(LEVELS, shares)[0]
        yield Player(
            name=f"{random.choice(_BEGINNINGS)}{random.choice(_ENDINGS)} "
            f"{random.choice(_HALVES)}{random.choice(_OTHERS)}",
            level=_draw_level(random, lowest, highest),
            region=random.choice(regions),
        )


def match_population(size: int) -> tuple[int, int]:
    """Create or delete players until ``size`` are left, the newest first. Returns (created, deleted).

    Nothing is pushed: the caller rebuilds the index afterwards, which is faster.
    """
    present = Player.objects.count()
    with disable_sync(), transaction.atomic():
        newcomers = islice(draw_players(), present, size) if present < size else iter(())
        while batch := list(islice(newcomers, BATCH)):
            Player.objects.bulk_create(batch)
        for surplus in range(max(present - size, 0), 0, -BATCH):
            newest = Player.objects.order_by("-pk").values_list("pk", flat=True)[: min(surplus, BATCH)]
            Player.objects.filter(pk__in=list(newest)).delete()
    return max(size - present, 0), max(present - size, 0)


def _draw_level(random: Random, lowest: int, highest: int) -> int:
    """Draw a level: uniformly from a range of ten levels, log-uniformly from a longer one."""
    if highest - lowest < 10:
        return random.randint(lowest, highest)
    return int(lowest * ((highest + 1) / lowest) ** random.random())
