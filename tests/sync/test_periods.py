"""Weekly and monthly leaderboards, with the models of docs/howto/periods.md: what databases accept as a week."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from redis import Redis

from django_zrank import RankIndex
from django_zrank.sync.watch import sync
from tests.projects import documented
from tests.sync.capturing import table
from tests.testapp.models import Player

pytestmark = pytest.mark.django_db(transaction=True)

ZONES = ["UTC", 'ZoneInfo("Europe/Berlin")', "dt_timezone(timedelta(hours=9))"]
CODE = documented("docs/howto/periods.md")["players/models.py"]

MOMENTS = [
    datetime(2026, 11, 29, 14, 59, 59, 999999, UTC),
    datetime(2026, 11, 29, 15, tzinfo=UTC),  # Monday in Tokyo
    datetime(2026, 11, 29, 22, 59, 59, tzinfo=UTC),
    datetime(2026, 11, 29, 23, tzinfo=UTC),  # Monday in Berlin
    datetime(2026, 11, 30, tzinfo=UTC),  # Monday
    datetime(2026, 12, 31, 23, 30, tzinfo=UTC),
    datetime(2026, 7, 31, 21, 59, tzinfo=UTC),
    datetime(2026, 7, 31, 22, tzinfo=UTC),  # August in Berlin, by summer time
]


@pytest.fixture(params=ZONES)
def page(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The models of the page, in a time zone, with their tables."""
    zone = request.param
    if connection.vendor == "mysql" and zone != "UTC":
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONVERT_TZ('2026-01-01', 'UTC', 'Europe/Berlin')")
            if cursor.fetchone() == (None,):
                pytest.skip("this server has no time zone tables")
    module = ModuleType("tests.testapp.periods")
    vars(module).update({"UTC": UTC, "dt_timezone": timezone})
    assert CODE.count('ZoneInfo("Asia/Tokyo")') == 1
    sys.modules[module.__name__] = module
    exec(CODE.replace('ZoneInfo("Asia/Tokyo")', zone), vars(module))
    with table(module.Run), table(module.Weekly):
        yield module
    del sys.modules[module.__name__]


def test_a_week_and_a_month_by_the_zone_of_the_board(
    page: ModuleType, declare: Callable[..., type[RankIndex]], zrank: Redis
) -> None:
    index = declare(page.Run, "-points", facets=("week", "month"))
    player = Player.objects.create()
    runs = [
        page.Run.objects.create(player=player, points=points, finished_at=moment)
        for points, moment in enumerate(MOMENTS)
    ]

    def assert_boards() -> None:
        rows = {run.pk: run for run in page.Run.objects.all()}
        boards: dict[tuple[str, Any], list[tuple[int, int]]] = {}
        for run in rows.values():
            local = run.finished_at.astimezone(page.ZONE).date()
            monday, month = local - timedelta(days=local.isoweekday() - 1), int(f"{local:%Y%m}")
            assert (run.week, run.month) == (page.week_of(run.finished_at), month) == (monday, month)
            for board in (("week", monday), ("month", month)):
                boards.setdefault(board, []).append((run.points, run.pk))
        for (facet, value), board in boards.items():
            found = [(entry.score, entry.pk) for entry in index.ranking.filter(**{facet: value})]
            assert found == sorted(board, reverse=True)
        weeks = {value: len(board) for (facet, value), board in boards.items() if facet == "week"}
        assert index.ranking.counts("week") == weeks
        assert index.ranking.count() == len(rows)

    assert_boards()
    page.Run.objects.filter(pk=runs[0].pk).update(finished_at=MOMENTS[4])  # to the next week, past the app
    sync(index)
    assert_boards()
    runs[1].delete()
    runs[5].finished_at = MOMENTS[7]
    runs[5].save()
    assert_boards()


@pytest.mark.part("write_behind")
@pytest.mark.parametrize("page", ZONES[1:2], indirect=True)
def test_the_best_result_of_a_week(page: ModuleType, declare: Callable[..., type[RankIndex]]) -> None:
    index: Any = declare(page.Weekly, "-points", facets=("week",), write_behind="best")
    players = [Player.objects.create() for _ in range(3)]
    best: dict[date, dict[int, int]] = {}
    for at, moment in enumerate(MOMENTS):
        player, week, points = players[at % 3], page.week_of(moment), 7 * at % 5
        row, _ = page.Weekly.objects.get_or_create(player=player, week=week)
        index.scores.submit(row, points)
        own = best.setdefault(week, {})
        own[row.pk] = max(points, own.get(row.pk, 0))
    for _ in range(2):
        for week, scores in best.items():
            assert {entry.pk: entry.score for entry in index.ranking.filter(week=week)} == scores
        sync(index)
    assert dict(page.Weekly.objects.values_list("pk", "points")) == {
        pk: points for scores in best.values() for pk, points in scores.items()
    }
