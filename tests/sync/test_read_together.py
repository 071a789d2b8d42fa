"""Rows that several indexes rank: one statement reads them for all indexes that differ in nothing but their columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count, F, FloatField, IntegerField, QuerySet, Value
from django.db.models.functions import Cast
from django.test.utils import CaptureQueriesContext

from django_zrank import RankIndex
from django_zrank.extension import declared
from django_zrank.sync import rows as module
from django_zrank.sync.push import push
from django_zrank.sync.rows import select_among, select_together
from django_zrank.sync.signal_handlers import disable_sync
from tests.sync.mirror import assert_mirrors
from tests.sync.test_rows import populate
from tests.testapp.models import Competitor, Guild

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
]


def probe(*order: str, rows: Callable[[], QuerySet[Any]] | None = None, **attributes: Any) -> RankIndex:
    attributes = {"model": Competitor, "order": order, "name": " ".join(order), **attributes}
    if rows is not None:
        attributes["get_queryset"] = lambda index: rows()
    index: RankIndex = type("Probe", (RankIndex,), attributes)()
    declared(index)  # asks for the queryset, once for all
    return index


def together(indexes: Sequence[RankIndex], pks: Sequence[Any]) -> list[set[RankIndex]]:
    """Return the indexes that are read by one statement, after a comparison with what each reads by itself."""
    module.forget()
    with CaptureQueriesContext(connection) as context:
        found = {index: list(rows) for index, rows in select_together(dict.fromkeys(indexes, pks)).items()}
    statements = len(context)
    for index, rows in found.items():
        own = [tuple(row) for row in select_among(index, pks)]
        assert sorted(map(repr, map(tuple, rows))) == sorted(map(repr, own)), index
    groups = [set(selected) for _, selected in module._shared([*found])] if found else []
    assert statements == len(groups)
    assert set().union(*groups) == found.keys()
    return groups


def pc() -> QuerySet[Competitor]:
    return Competitor.objects.filter(platform="pc")


ALIKE = {
    "orders": lambda: [probe("lost"), probe("-lost"), probe("lost", "-points", "joined")],
    "facets": lambda: [
        probe("lost"),
        probe("lost", facets=("region",)),
        probe("-lost", facets=("platform", ("region", "platform"))),
    ],
    "a nullable criterion": lambda: [probe("points", "joined"), probe("-points", "lost")],
    "querysets": lambda: [probe("lost", rows=pc), probe("-lost", rows=pc, facets=("region",))],
    "joins": lambda: [
        probe("lost", facets=("guild__slug",)),
        probe("-lost", facets=("guild__slug", "region")),
    ],
    "distinct": lambda: [
        probe("lost", rows=lambda: Competitor.objects.filter(tags__word="fast").distinct()),
        probe(
            "-lost", rows=lambda: Competitor.objects.filter(tags__word="fast").distinct(), facets=("region",)
        ),
    ],
    "annotations that aren't read": lambda: [
        probe("lost", rows=lambda: Competitor.objects.annotate(number=F("lost") + 1)),
        probe("-lost", rows=lambda: Competitor.objects.annotate(number=F("lost") + 2)),
    ],
}

DIFFERENT = {
    "conditions": lambda: [probe("lost"), probe("-lost", rows=pc)],
    "parameters": lambda: [
        probe("lost", rows=pc),
        probe("-lost", rows=lambda: Competitor.objects.filter(platform="p:c")),
    ],
    "types of parameters": lambda: [
        probe("lost", rows=lambda: Competitor.objects.annotate(one=Value(1)).filter(one=F("lost"))),
        probe("-lost", rows=lambda: Competitor.objects.annotate(one=Value(True)).filter(one=F("lost"))),
    ],
    "nullable criteria": lambda: [probe("points"), probe("total")],
    "joins": lambda: [probe("lost"), probe("-lost", facets=("guild__slug",))],
    "facets of several values": lambda: [probe("lost", facets=("tags",)), probe("-lost", facets=("tags",))],
    "annotations": lambda: [
        probe("number", rows=lambda: Competitor.objects.annotate(number=Cast("lost", IntegerField()))),
        probe("number", rows=lambda: Competitor.objects.annotate(number=Cast("lost", FloatField()))),
    ],
    "the same annotation": lambda: [
        probe(order, rows=lambda: Competitor.objects.annotate(number=F("lost") + 1))
        for order in ("number", "-number")
    ],
    "no rows": lambda: [
        probe("lost", rows=Competitor.objects.none),
        probe("-lost", rows=Competitor.objects.none),
    ],
    "models": lambda: [probe("id"), probe("-id", model=Guild)],
}

PERHAPS = {
    # Databases differ in what has to be listed in GROUP BY.
    "groups": lambda: [
        probe("lost", rows=lambda: Competitor.objects.annotate(n=Count("tags")).filter(n__gt=1)),
        probe(
            "-lost",
            rows=lambda: Competitor.objects.annotate(n=Count("tags")).filter(n__gt=1),
            facets=("region",),
        ),
    ],
}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE)
def test_indexes_that_differ_in_their_columns_are_read_together(make: Callable[[], list[RankIndex]]) -> None:
    indexes, pks = make(), [one.pk for one in populate(20)]
    assert together(indexes, pks) == [{*indexes}]
    assert together(indexes, pks[:1]) == [{*indexes}]


@pytest.mark.parametrize("make", DIFFERENT.values(), ids=DIFFERENT)
def test_others_are_read_each_by_itself(make: Callable[[], list[RankIndex]]) -> None:
    pks = [one.pk for one in populate(20)]
    assert together(make(), pks) == []


def test_any_two() -> None:
    pks = [one.pk for one in populate(20)]
    indexes = [index for make in {**ALIKE, **DIFFERENT, **PERHAPS}.values() for index in make()]
    for two in combinations(indexes, 2):
        if two[0] is not two[1]:
            together(two, pks)
    together(indexes, pks)


def test_only_the_same_members_are_read_together() -> None:
    pks = [one.pk for one in populate(4)]
    one, two = probe("lost"), probe("-lost")
    assert select_together({one: pks[:2], two: pks[1:]}) == {}
    assert select_together({one: pks, two: pks[::-1]}).keys() == {one, two}


@pytest.mark.parametrize("seed", range(3))
def test_each_index_gets_its_own(declare: Callable[..., type[RankIndex]], seed: int) -> None:
    lots = random.Random(seed)
    with disable_sync():
        rows = populate(30, seed)
    declared_ = [
        declare(Competitor, "lost"),
        declare(Competitor, "-lost", facets=("region", ("region", "platform"))),
        declare(Competitor, "points", facets=("platform",)),
        declare(Competitor, "-points"),
        declare(Competitor, "lost", facets=("tags",)),
        declare(Competitor, "lost", facets=("guild__slug",)),
    ]
    for one in rows:
        one.lost, one.points = lots.randrange(9), lots.choice([None, 3, 5])
        one.region = lots.choice([None, "kantou", "kansai"])
        one.save()
    for index in declared_:
        assert_mirrors(index)
    push(declared_[0].instance(), [one.pk for one in rows])
    rows[0].delete()
    for index in declared_:
        assert_mirrors(index)
