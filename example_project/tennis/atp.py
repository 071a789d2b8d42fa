"""The weekly tables of the ATP: read, replayed as ordinary saves, and compared with the index.

The files are those of Jeff Sackmann's tennis_atp: ``players.csv`` and ``rankings.csv``.
"""

from __future__ import annotations

import csv
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from django_zrank import NotRanked

from .models import TennisPlayer
from .zrank import AtpRank

Who = tuple[int, int]
"""A player: the id in the files, and the number of the line among those with this id (0, except for namesakes)."""


class Place(NamedTuple):
    """One line of a table."""

    rank: int
    points: int


class Week(NamedTuple):
    """One published table."""

    day: date
    places: dict[Who, Place]


class Comparison(NamedTuple):
    """The result of comparing an index with a table."""

    agreeing: int
    """The number of players of the table whose rank and score are right."""

    disagreements: list[str]
    """Descriptions of the differences."""


def read_weeks(folder: Path) -> list[Week]:
    """The tables of ``rankings.csv``, in the order of their dates.

    Now and then a table has two lines for one id, with two ranks: two people whom the source has mixed up.
    Both are counted; the second becomes a player of its own.
    Raises ``ValueError`` that names the line, ``OSError``.
    """
    tables: dict[date, dict[Who, Place]] = defaultdict(dict)
    for day, rank, atp_id, points in _rows(
        folder / "rankings.csv", {"ranking_date": _day, "rank": int, "player": int, "points": int}
    ):
        table, namesake = tables[day], 0
        while (atp_id, namesake) in table:
            namesake += 1
        table[atp_id, namesake] = Place(rank, points)
    return [Week(day, tables[day]) for day in sorted(tables)]


def namesakes(weeks: Iterable[Week]) -> list[tuple[int, int]]:
    """The ids that several people share, with their number."""
    most: dict[int, int] = {}
    for atp_id, namesake in (who for week in weeks for who in week.places):
        if namesake:
            most[atp_id] = max(most.get(atp_id, 0), namesake + 1)
    return sorted(most.items())


def load_players(folder: Path, weeks: Iterable[Week]) -> int:
    """Create or update the players of ``players.csv`` and of the weeks; returns how many there are.

    Written in bulk: the caller rebuilds the indexes afterwards.
    Raises ``ValueError`` that names the line, ``OSError``.
    """
    described = {
        atp_id: (f"{first} {last}".strip(), country, born)
        for atp_id, first, last, country, born in _rows(
            folder / "players.csv",
            {
                "player_id": int,
                "name_first": str,
                "name_last": str,
                "ioc": str,
                "dob": lambda text: _day(text) if text else None,
            },
        )
    }
    everybody = {(atp_id, 0) for atp_id in described}.union(*(week.places for week in weeks))
    TennisPlayer.objects.bulk_create(
        [_player(who, *described.get(who[0], (f"Player {who[0]}", "", None))) for who in sorted(everybody)],
        batch_size=1000,
        update_conflicts=True,
        update_fields=["name", "country", "born"],
        unique_fields=["atp_id", "namesake"],
    )
    return len(everybody)


TOGETHER = 500
"""Players that are saved in one transaction."""


def play_week(week: Week) -> int:
    """Give every player the points of the week: one ``save()`` for each change. Returns the number of changes.

    Players that are not in the table lose their points, and leave the ranking.
    """
    changed = []
    for player in TennisPlayer.objects.all():
        place = week.places.get((player.atp_id, player.namesake))
        points = place.points if place else None
        if player.points != points:
            player.points = points
            changed.append(player)
    # What a transaction changes beyond a thousand members is not pushed, but left to sync_zrank.
    for start in range(0, len(changed), TOGETHER):
        with transaction.atomic():
            for player in changed[start : start + TOGETHER]:
                player.save()
    return len(changed)


def compare(week: Week) -> Comparison:
    """Compare the index with the published table. Raises ``IndexUnavailable``.

    Equal points are published in an order of their own, so a rank is right from 1 + (players with more
    points) to (players with at least as many). That must hold for the published rank and for the index's;
    the score must be the points; and nobody else may be in the index.
    """
    ascending = sorted(place.points for place in week.places.values())
    pks = {
        (atp_id, namesake): pk
        for pk, atp_id, namesake in TennisPlayer.objects.values_list("pk", "atp_id", "namesake")
    }
    wrong = []
    for who, place in week.places.items():
        best = 1 + len(ascending) - bisect_right(ascending, place.points)
        worst = len(ascending) - bisect_left(ascending, place.points)
        score, rank = _in_index(pks[who])
        if (
            score != place.points
            or rank is None
            or not (best <= rank <= worst and best <= place.rank <= worst)
        ):
            wrong.append(
                f"player {who[0]}: published with {place.points} points at rank {place.rank}, "
                f"in the index with {score} at {rank}; right is {best} to {worst}"
            )
    agreeing = len(week.places) - len(wrong)
    size = AtpRank.ranking.count()
    if size != len(week.places):
        wrong.append(f"the index holds {size} members, the table {len(week.places)}")
    return Comparison(agreeing, wrong)


def _in_index(pk: int) -> tuple[int | None, int | None]:
    """The score and the rank of a member; None for both if it is not ranked."""
    try:
        return AtpRank.ranking.score(pk), AtpRank.ranking.rank(pk)
    except NotRanked:
        return None, None


def _player(who: Who, name: str, country: str, born: date | None) -> TennisPlayer:
    atp_id, namesake = who
    label = f"{name} ({namesake + 1})" if namesake else name
    return TennisPlayer(atp_id=atp_id, namesake=namesake, name=label, country=country, born=born)


def _day(text: str) -> date:
    return datetime.strptime(text, "%Y%m%d").date()


def _rows(path: Path, columns: dict[str, Callable[[str], Any]]) -> Iterator[list[Any]]:
    """The values of the named columns, line by line, each through its function."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        for line in lines:
            try:
                yield [convert(line[column]) for column, convert in columns.items()]
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, line {lines.line_num}: {error!r}") from error
