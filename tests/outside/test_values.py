"""Values that a database holds and Python doesn't have: Redis and the SQL fallback give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps
from redis import Redis

from django_zrank import RankIndex
from django_zrank.testing import sync_now
from tests.testapp.models import Team
from tests.without_parts.parts import PARTS

BROKEN = {
    "postgresql": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "10000-01-02 00:00"],
    "mysql": ["0000-00-00"],
}
"""Dates and times of each database."""

DATES = {
    "founded": [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31), None],
    "achieved_at": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC), None],
}
"""By column, values of rows that can be read."""


def declared(*order: str, facets: Any = (), model: Any = Team) -> type[RankIndex]:
    attributes = {"name": "-".join(order), "model": model, "order": order, "facets": facets}
    return type("Teams", (RankIndex,), attributes)


def answers(index: Any) -> list[Any]:
    """What can be asked, in a form that can be compared."""
    ranking = index.ranking
    found: list[Any] = [list(ranking.top(100)), list(ranking.reversed().top(100)), ranking.count()]
    pks = list(index.model.objects.values_list("pk", flat=True))
    found += [ranking.ranks(pks), [ranking.entry(entry.pk) for entry in found[0]]]
    for path in index.instance().faceting.paths:
        counts = ranking.counts(path)
        found += [counts]
        for value in sorted(counts, key=str):
            narrowed = [ranking.filter(**{path: value})]
            if PARTS["combined"].is_there:
                narrowed.append(ranking.exclude(**{path: value}))
            found += [list(one.top(100)) for one in narrowed]
    return found


@pytest.fixture
def _lenient() -> Iterator[None]:
    """MariaDB takes such dates."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = ''")
    yield
    connection.close()


dates = pytest.mark.skipif(connection.vendor not in BROKEN, reason="SQLite's dates are text")


@dates
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_lenient")
@pytest.mark.parametrize("column", DATES)
def test_a_date_that_python_has_not_counts_as_null(zrank: Redis, settings: Any, column: str) -> None:
    held = [*DATES[column], *BROKEN[connection.vendor]]
    teams = Team.objects.bulk_create(Team(points=at, goals=at % 2) for at in range(2 * len(held)))
    with connection.cursor() as cursor:
        for team, value in zip(teams, held * 2, strict=True):
            cursor.execute(f"UPDATE testapp_team SET {column} = %s WHERE id = %s", [value, team.pk])
    facets = ("founded",) if column == "founded" else ()
    indexes = [
        declared(f"-{column}"),
        declared(column, "goals", facets=facets),
        declared("-goals", column, facets=facets),
        declared("goals", f"-{column}"),
    ]
    settings.ZRANK = {"UNHEALTHY": "database"}
    sync_now(*indexes)
    expected = [answers(index) for index in indexes]
    readable = sum(value is not None for value in DATES[column])
    assert [found[2] for found in expected] == [2 * readable, 2 * readable, len(teams), len(teams)]
    zrank.flushall()
    for index, found in zip(indexes, expected, strict=True):
        assert answers(index) == found, index.name


with isolate_apps("tests.testapp"):

    class Deadline(models.Model):
        """Columns that the model declares as not null."""

        n = models.IntegerField()
        day = models.DateField()
        moment = models.DateTimeField()

        class Meta:
            app_label = "testapp"


@dates
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_lenient")
def test_where_there_must_be_no_null_the_row_is_not_ranked(zrank: Redis, settings: Any) -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Deadline)
    try:
        insert = "INSERT INTO testapp_deadline (n, day, moment) VALUES (%s, %s, %s)"
        with connection.cursor() as cursor:
            for at, value in enumerate(["2024-02-29", *BROKEN[connection.vendor]]):
                cursor.execute(insert, [at, value, value])
        indexes = [
            declared(*order, model=Deadline) for order in (("n", "day"), ("n", "-moment"), ("day", "n"))
        ]
        settings.ZRANK = {"UNHEALTHY": "database"}
        sync_now(*indexes)
        for index in indexes:
            assert index.ranking.count() == 1
        expected = [answers(index) for index in indexes]
        zrank.flushall()
        assert [answers(index) for index in indexes] == expected
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Deadline)
