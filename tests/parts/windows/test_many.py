"""Weeks of ten thousand players, and real results of a year, compared with plain SQL."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.db.models import Q, Sum

from django_zrank import RankIndex
from django_zrank.sync.drain import drain
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.windows.store import WindowStore
from django_zrank.windows.sweep import sweep
from tests.parts.windows.clock import database_clock
from tests.parts.windows.test_windows import SetClock, clock, rows  # noqa: F401
from tests.sync.mirror import contents
from tests.testapp.models import Competitor, Duel

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

START = datetime(2026, 1, 5, tzinfo=UTC)

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "atp"

Declare = Callable[..., type[RankIndex]]


def by_hand(column: str, after: Any) -> dict[str, float]:
    """What SQL says, without anything of this app."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT competitor_id, SUM(points) FROM testapp_duel WHERE {column} > %s GROUP BY competitor_id",
            [after],
        )
        return {str(pk): float(points) for pk, points in cursor.fetchall()}


def differences(index: type[RankIndex], expected: dict[str, float]) -> int:
    held = contents(index)
    return sum(held.get(member) != expected.get(member) for member in {*held, *expected})


def test_ten_thousand_players(declare: Declare, clock: SetClock) -> None:  # noqa: F811
    """Six weeks, at whose random moments nobody may be wrong, though sweeps are killed, limited and skipped."""
    random, week = Random(1), timedelta(days=7)
    clock.now = START
    index = declare(
        Competitor,
        "-week",
        get_queryset=rows(
            lambda found: found.annotate(week=Sum("duels__points", filter=Q(duels__fought_at__within=week)))
        ),
    )
    Competitor.objects.bulk_create((Competitor() for _ in range(10_000)), batch_size=1000)
    players = list(Competitor.objects.values_list("pk", flat=True))
    sync(index)
    instance, moments, wrong, compared = index.instance(), 0, 0, 0
    while clock.now < START + 6 * week:
        begun = clock.now
        clock.now += timedelta(seconds=random.randrange(1, 40_000), microseconds=random.randrange(1_000_000))
        passed = (clock.now - begun).total_seconds()
        Duel.objects.bulk_create(
            (
                Duel(
                    competitor_id=random.choice(players),
                    points=random.randrange(-3, 30),
                    fought_at=begun + timedelta(seconds=passed * random.random()),
                )
                for _ in range(random.randrange(600))
            ),
            batch_size=1000,
        )
        old = list(Duel.objects.order_by("pk").values_list("pk", flat=True)[:50])
        Duel.objects.filter(pk__in=random.sample(old, min(len(old), 5))).update(
            competitor=random.choice(players)
        )
        Duel.objects.filter(pk__in=random.sample(old, min(len(old), 5))).delete()
        if random.random() < 0.2:
            killed = mock.patch.object(WindowStore, "note_swept", side_effect=KeyboardInterrupt)
            with killed, suppress(KeyboardInterrupt):
                sweep(instance)
        elif random.random() < 0.2:
            sweep(instance, limit=100)
            drain(instance)
        if random.random() < 0.6:
            sweep(instance)
            drain(instance)
            after = connection.ops.adapt_datetimefield_value(clock.now - week)
            expected = by_hand("fought_at", after)
            moments, compared = moments + 1, compared + len(expected)
            wrong += differences(index, expected)
    assert (wrong, moments > 50, compared > 100_000) == (0, True, True)
    assert verify(instance).ok


@pytest.mark.skipif(not REAL.exists(), reason="the real rankings are not here")
def test_points_of_52_weeks_of_real_results(declare: Declare) -> None:
    """What a player gains or loses from one weekly table to the next is a result of that day, for 52 weeks.
    The tables are replayed, and then a year passes, a day at a time."""
    tables: dict[date, dict[int, int]] = {}
    with (REAL / "rankings.csv").open() as file:
        for row in csv.DictReader(file):
            day = datetime.strptime(row["ranking_date"], "%Y%m%d").replace(tzinfo=UTC).date()
            tables.setdefault(day, {})[int(row["player"])] = int(row["points"])
    year, clock = timedelta(weeks=52), SetClock()  # noqa: F811
    first, *_, last = sorted(tables)
    clock.now = datetime.combine(first, time(), UTC)
    with database_clock(lambda: clock.now):
        index = declare(
            Competitor,
            "-year",
            get_queryset=rows(
                lambda found: found.annotate(
                    year=Sum("duels__points", filter=Q(duels__fought_on__within=year))
                )
            ),
        )
        players = {player for table in tables.values() for player in table}
        Competitor.objects.bulk_create((Competitor(pk=player) for player in sorted(players)), batch_size=500)
        sync(index)
        known: dict[int, int] = {}
        compared = wrong = moments = 0
        while clock.now.date() <= last + year + timedelta(days=2):
            today = clock.now.date()
            if table := tables.get(today):
                gained = [(p, table.get(p, 0) - known.get(p, 0)) for p in {*table, *known}]
                found = [Duel(competitor_id=p, points=by, fought_on=today) for p, by in gained if by]
                Duel.objects.bulk_create(found, batch_size=500)
                known = table
            if table or today > last + year - timedelta(days=200):
                # At this time of the day, the default time zone has the same date.
                clock.now = datetime.combine(today, time(18), UTC)
                sweep(index.instance())
                drain(index.instance())
                expected = by_hand("fought_on", connection.ops.adapt_datefield_value(today - year))
                compared, moments = compared + len(expected), moments + 1
                wrong += differences(index, expected)
            clock.now += timedelta(days=1)
        assert contents(index) == {}
        assert verify(index.instance()).ok
    assert (wrong, moments > 200, compared > 300_000) == (0, True, True)
