"""Compares the indexes with the window functions of the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db.models import CharField, F, Window
from django.db.models.functions import Cast, Rank, RowNumber

from django_zrank import RankIndex

from .atp import Comparison
from .models import TennisPlayer
from .zrank import AtpAgeRank, AtpRank


class Question(NamedTuple):
    """One way to rank the players, for both."""

    index: type[RankIndex]
    in_country: bool
    function: Any
    order_by: tuple[Any, ...]


# Equal points are in the order of the primary keys as text, backwards where the points are.
_POINTS = (RowNumber(), (F("points").desc(), Cast("pk", CharField()).desc()))
_AGE = (Rank(), (F("points").desc(), F("born").desc(nulls_last=True)))

QUESTIONS = {
    "in the world": Question(AtpRank, False, *_POINTS),
    "inside countries": Question(AtpRank, True, *_POINTS),
    "younger first": Question(AtpAgeRank, False, *_AGE),
    "younger first inside countries": Question(AtpAgeRank, True, *_AGE),
}
"""The rankings to compare, by their descriptions."""


def compare_with_database(question: Question) -> Comparison:
    """Compare every rank of an index with the database's. Raises ``IndexUnavailable``.

    Players without points must have no rank, and each country its number of players.
    """
    expected, found = _in_database(question), _in_index(question)
    wrong = [
        f"player {pk}: rank {found[pk]} in the index, {expected.get(pk)} in the database"
        for pk in found
        if found[pk] != expected.get(pk)
    ]
    agreeing = sum(found[pk] == rank for pk, rank in expected.items())
    ranked = TennisPlayer.objects.filter(points__isnull=False).values_list("country", flat=True)
    countries: Mapping[str, int] = Counter(ranked)
    counted = question.index.ranking.counts("country")
    if counted != countries:
        differing = sorted(dict(counted.items() ^ countries.items()))
        wrong.append(f"the sizes of countries differ: {', '.join(map(repr, differing))}")
    return Comparison(agreeing, wrong)


def _in_database(question: Question) -> dict[int, int]:
    window = Window(
        question.function,
        partition_by=[F("country")] if question.in_country else None,
        order_by=question.order_by,
    )
    ranked = TennisPlayer.objects.filter(points__isnull=False)
    return dict(ranked.annotate(place=window).values_list("pk", "place"))


def _in_index(question: Question) -> dict[int, int | None]:
    ranking = question.index.ranking
    players: dict[str, list[int]] = defaultdict(list)
    for pk, country in TennisPlayer.objects.values_list("pk", "country"):
        players[country].append(pk)
    if not question.in_country:
        return ranking.ranks(pk for pks in players.values() for pk in pks)
    found: dict[int, int | None] = {}
    for country, pks in players.items():
        found |= ranking.filter(country=country).ranks(pks)
    return found
