"""``candidates`` is the number of members in the band, or None: never that of another set."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Q

from django_zrank import RankIndex
from django_zrank.testing import sync_now
from tests.testapp.models import Competitor

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("zrank")]

REGIONS, PLATFORMS = ("north", "east", "south"), ("a", "b", "c", "d")
ROWS = 600
GROUP = range(0, ROWS, 7)


class Whole(RankIndex):
    """No facet covers a region and a platform, or a group."""

    name = "candidates"
    model = Competitor
    order = ("-points",)
    facets = ("region", "platform")
    band = 50


class Divided(Whole):
    name = "candidates-divided"
    shards = 3


@pytest.fixture(params=[Whole, Divided])
def index(request: pytest.FixtureRequest) -> type[RankIndex]:
    rng = random.Random(1)
    Competitor.objects.bulk_create(
        Competitor(points=rng.randrange(300), region=rng.choice(REGIONS), platform=rng.choice(PLATFORMS))
        for _ in range(ROWS)
    )
    found: type[RankIndex] = request.param
    sync_now(found)
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.part("combined", "groups")
def test_they_are_counted_or_not_known(index: type[RankIndex], seed: int) -> None:
    rng, rows = random.Random(seed), list(Competitor.objects.order_by("pk"))
    index.group("few").add(*(rows[at].pk for at in GROUP))
    grouped = {rows[at].pk for at in GROUP}
    rankings: list[tuple[Any, Any]] = [
        (index.ranking, lambda row: True),
        (index.ranking.filter(region="north"), lambda row: row.region == "north"),
        (index.ranking.exclude(region="north"), lambda row: row.region != "north"),
        (
            index.ranking.filter(region="north", platform="a"),
            lambda row: (row.region, row.platform) == ("north", "a"),
        ),
        (index.ranking.filter(group="few"), lambda row: row.pk in grouped),
        (index.ranking.exclude(group="few"), lambda row: row.pk not in grouped),
    ]
    known = 0
    for number in range(120):
        ranking, passes = rankings[number % len(rankings)]
        me, band = rng.choice(rows), rng.choice([3, 50, 400])
        near = [row.pk for row in rows if abs(row.points - me.points) <= band and row.pk != me.pk]
        inside = {row.pk for row in rows if passes(row)}.intersection(near)
        exclude = rng.sample(near, len(near) * rng.choice([0, 0, 1, 9, 10]) // 10)
        further: dict[str, Any] = rng.choice([{}, {}, {"remember": timedelta(hours=1)}])
        drawn = ranking.recommend(me, rng.choice([1, 10, 40]), band=band, exclude=exclude, **further)
        assert drawn.candidates in (None, len(inside))
        known += drawn.candidates is not None
        assert {entry.pk for entry in drawn} <= inside.difference(exclude)
    assert known >= 40  # with one facet or none


def test_under_a_condition_of_the_database_they_are_not_known(index: type[RankIndex]) -> None:
    me = Competitor.objects.all()[0]
    drawn = index.ranking.recommend(me, 5, where=Q(platform="a"))
    assert len(drawn) == 5
    assert drawn.candidates is None
