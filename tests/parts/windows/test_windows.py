"""Rolling windows: what Redis holds as time passes, against plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.db.models import (
    BooleanField,
    Case,
    CharField,
    Count,
    ExpressionWrapper,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_zrank import RankIndex
from django_zrank.models import Mark
from django_zrank.recent import Recent
from django_zrank.store import Store
from django_zrank.sync import upkeep
from django_zrank.sync.drain import drain
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.windows import sweep as sweep_module
from django_zrank.windows.extension import Windows
from django_zrank.windows.store import WindowStore
from django_zrank.windows.sweep import sweep
from django_zrank.windows.window import windows_of
from tests.parts.windows.clock import database_clock
from tests.rankings import by_sql
from tests.sync.mirror import contents
from tests.testapp.models import Competitor, Duel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

START = datetime(2026, 3, 20, 12, tzinfo=UTC)
"""Before the clocks of Europe and New York are set."""

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MICROSECOND = timedelta(microseconds=1)

Declare = Callable[..., type[RankIndex]]


class SetClock:
    """The time of the database, which a test sets."""

    now = START


@pytest.fixture
def clock() -> Iterator[SetClock]:
    clock = SetClock()
    with database_clock(lambda: clock.now):
        yield clock


def rows(change: Callable[[QuerySet[Competitor]], Any]) -> Any:
    """A ``get_queryset()``."""
    return lambda self: change(Competitor.objects.all())


def recent(period: timedelta, column: str = "fought_at", **more: Any) -> Sum:
    return Sum("duels__points", filter=Q(**{f"duels__{column}__within": period}, **more))


def local_day(now: datetime) -> date:
    return now.astimezone(timezone.get_default_timezone()).date()


def total(row: Competitor, inside: Callable[[Duel], bool]) -> int | None:
    points = [duel.points for duel in row.duels.all() if inside(duel)]
    return sum(points) if points else None


def since(now: datetime, period: timedelta) -> Callable[[Duel], bool]:
    return lambda duel: duel.fought_at is not None and duel.fought_at > now - period


def last(row: Competitor) -> datetime | None:
    return max((duel.fought_at for duel in row.duels.all() if duel.fought_at), default=None)


Expected = Callable[[Competitor, datetime], "tuple[Any, ...] | None"]
"""The values of the criteria and of a facet of a row at a time; None, or a first None, for a row that isn't ranked."""

UPPER = Sum(
    "duels__points", filter=Q(duels__fought_at__within=WEEK) & ~Q(duels__fought_at__within=timedelta(0))
)
HEAT = Case(
    When(joined__within=20 * DAY, then=Value("hot")),
    default=Value("cold"),
    output_field=CharField(max_length=4),
)

INDEXES: dict[str, tuple[str, dict[str, Any], Expected]] = {
    "a sum": (
        "-week",
        {"get_queryset": rows(lambda found: found.annotate(week=recent(WEEK)))},
        lambda row, now: (total(row, since(now, WEEK)),),
    ),
    "two windows and facets, over shards": (
        "-week",
        {
            "get_queryset": rows(
                lambda found: found.annotate(
                    week=Sum("duels__points", filter=Q(duels__fought_at__within=WEEK), default=0),
                    month=Count("duels", filter=Q(duels__fought_at__within=30 * DAY)),
                )
            ),
            "get_order": lambda self: ("-week", "-month"),
            "facets": ("region",),
            "shards": 3,
        },
        lambda row, now: (
            total(row, since(now, WEEK)) or 0,
            sum(map(since(now, 30 * DAY), row.duels.all())),
        ),
    ),
    "without what is to come": (
        "-week",
        {"get_queryset": rows(lambda found: found.annotate(week=UPPER))},
        lambda row, now: (total(row, lambda duel: since(now, WEEK)(duel) and not since(now, 0 * DAY)(duel)),),
    ),
    "the week before the last": (
        "-week",
        {
            "get_queryset": rows(
                lambda found: found.annotate(
                    week=Sum(
                        "duels__points",
                        filter=Q(duels__fought_at__within=2 * WEEK) & ~Q(duels__fought_at__within=WEEK),
                        default=0,
                    )
                )
            )
        },
        lambda row, now: (
            total(row, lambda duel: since(now, 2 * WEEK)(duel) and not since(now, WEEK)(duel)) or 0,
        ),
    ),
    "of dates": (
        "-week",
        {"get_queryset": rows(lambda found: found.annotate(week=recent(WEEK, "fought_on")))},
        lambda row, now: (
            total(row, lambda duel: duel.fought_on is not None and duel.fought_on > local_day(now) - WEEK),
        ),
    ),
    "of members that are not idle": (
        "-week",
        {
            "get_queryset": rows(lambda found: found.annotate(week=recent(WEEK))),
            "idle": ("joined", 20 * DAY),
        },
        lambda row, now: (
            total(row, since(now, WEEK)) if row.joined is not None and row.joined > now - 20 * DAY else None,
        ),
    ),
    "of rows that are filtered, with a facet that depends on the time": (
        "-points",
        {
            "get_queryset": rows(
                lambda found: found.annotate(last=Max("duels__fought_at"), heat=HEAT).filter(
                    last__within=WEEK
                )
            ),
            "facets": ("heat",),
        },
        lambda row, now: (
            row.points if (latest := last(row)) is not None and latest > now - WEEK else None,
            "hot" if row.joined is not None and row.joined > now - 20 * DAY else "cold",
        ),
    ),
    "of another database column, beside a score that begins in Redis": (
        "-points",
        {
            "get_queryset": rows(
                lambda found: found.annotate(
                    is_new=ExpressionWrapper(Q(joined__within=20 * DAY), output_field=BooleanField())
                )
            ),
            "facets": ("is_new",),
            "write_behind": "increment",
        },
        lambda row, now: (row.points, row.joined > now - 20 * DAY if row.joined is not None else None),
    ),
}


def assert_right(index: type[RankIndex], expected: Expected, now: datetime) -> int:
    """Compare Redis with every row, and return the number of members that are ranked."""
    instance = index.instance()
    found = {}
    for row in Competitor.objects.prefetch_related("duels"):
        values = expected(row, now)
        if values and values[0] is not None:
            found[str(row.pk)] = values
    held: dict[str, float] = {}
    for holder in instance.holders:
        store = Store.of(holder)
        width = holder.layout.width
        for member, score in store.client.zrange(store.live.root, 0, -1, withscores=True):
            held[member[width:].decode()] = score
    assert held == {member: values[0] for member, values in found.items()}
    facets = instance.faceting.all
    if facets and len(instance.ordering.criteria) == 1 and "region" not in instance.faceting.paths:
        (name,) = instance.faceting.paths
        for value in {values[1] for values in found.values()}:
            members = {entry.pk for entry in index.ranking.filter(**{name: value}).top(1000)}
            assert members == {int(member) for member, values in found.items() if values[1] == value}
    if len(instance.ordering.criteria) > 1:
        values_of = {str(entry.pk): entry.values for entry in index.ranking.top(1000)}
        assert values_of == found
    return len(found)


class Simulation:
    """Weeks of duels, at random, and all that may happen to them."""

    def __init__(self, index: type[RankIndex], clock: SetClock, seed: int, players: int = 25) -> None:
        self.index, self.clock, self.random = index, clock, Random(seed)
        Competitor.objects.bulk_create(
            Competitor(points=n, region="ab"[n % 2], joined=self.moment()) for n in range(players)
        )
        self.players = list(Competitor.objects.all())
        self.fight(60)
        sync(index)

    def moment(self) -> datetime | None:
        if self.random.random() < 0.05:
            return None
        return self.clock.now + timedelta(seconds=self.random.randrange(-40 * 86400, 3 * 86400))

    def fight(self, count: int) -> None:
        moments = [self.moment() for _ in range(count)]
        Duel.objects.bulk_create(
            Duel(
                competitor=self.random.choice(self.players),
                points=self.random.randrange(-5, 20),
                fought_at=moment,
                fought_on=moment and local_day(moment),
            )
            for moment in moments
        )

    def some(self) -> QuerySet[Duel]:
        pks = list(Duel.objects.values_list("pk", flat=True))
        return Duel.objects.filter(pk__in=self.random.sample(pks, min(len(pks), 3)))

    def change(self) -> None:
        """Change rows."""
        moment = self.moment()
        what = self.random.randrange(7)
        if what == 0:
            self.fight(5)
        elif what == 1:
            self.some().update(fought_at=moment, fought_on=moment and local_day(moment))
        elif what == 2:
            self.some().delete()
        elif what == 3:
            self.some().update(competitor=self.random.choice(self.players))
        elif what == 4:
            for duel in self.some():
                duel.points += 1
                duel.save()
        elif what == 5:
            for player in self.random.sample(self.players, 2):
                player.joined = moment
                player.save()
        else:
            self.fight(1)

    def happen(self) -> None:
        """Let something happen on the way to Redis."""
        instance, what = self.index.instance(), self.random.randrange(9)
        if what == 0:  # a sweep is killed before its note, or after its first mark
            sooner = mock.patch.object(WindowStore, "note_swept", side_effect=KeyboardInterrupt)
            with sooner, suppress(KeyboardInterrupt):
                sweep(instance)
        elif what == 1:
            with mock.patch.object(sweep_module, "PAGE_SIZE", 3):
                sweep(instance, limit=4)
        elif what == 2:
            drain(instance)
        elif what == 3:
            sweep(instance)
        elif what == 4:  # the clock jumps ahead, and back, while members are written
            right = self.clock.now
            self.clock.now += self.random.choice([timedelta(seconds=3), DAY, 50 * DAY])
            self.change()
            if self.random.random() < 0.5:
                sweep(instance)
            if self.random.random() < 0.5:
                drain(instance)
            self.clock.now = right
        elif what == 5:
            self.clock.now -= timedelta(hours=self.random.randrange(30))
        elif what == 6 and self.random.random() < 0.2:
            rebuild(instance)
        elif what == 7:
            push(instance, [player.pk for player in self.random.sample(self.players, 3)])
        elif self.random.random() < 0.3:  # the server loses its note
            for holder in instance.holders:
                store = Store.of(holder)
                store.client.hdel(store.keys.meta, "swept")

    def jump(self) -> None:
        """Let time pass: often up to the moment, or to the microsecond before, at which a value leaves."""
        passed = timedelta(seconds=self.random.choice([1, 60, 3600, 30000, 200000]) * self.random.random())
        moments = [moment for moment in Duel.objects.values_list("fought_at", flat=True) if moment]
        periods = [window.period for window in windows_of(self.index.instance())]
        ends = sorted(moment + period for moment in moments for period in periods)
        ahead = [end for end in ends if end > self.clock.now]
        if ahead and self.random.random() < 0.5:
            self.clock.now = ahead[0] - self.random.choice([timedelta(0), MICROSECOND])
        else:
            self.clock.now += passed


@pytest.mark.part("sql")
@pytest.mark.parametrize("name", INDEXES)
def test_weeks_of_duels(name: str, declare: Declare, clock: SetClock) -> None:
    order, attributes, expected = INDEXES[name]
    index = declare(Competitor, order, **attributes)
    weeks = Simulation(index, clock, seed=len(name))
    assert_right(index, expected, clock.now)
    compared = 0
    for step in range(100):
        for _ in range(weeks.random.randrange(3)):
            weeks.change()
        if weeks.random.random() < 0.4:
            weeks.happen()
        weeks.jump()
        if weeks.random.random() < 0.5:
            sweep(index.instance())
            drain(index.instance())
            compared += assert_right(index, expected, clock.now)
        if step % 40 == 39:
            assert verify(index.instance()).ok
    assert compared > 50
    sync(index)
    with mock.patch("django_zrank.sql.logger") as logger:
        assert [entry.pk for entry in by_sql(index).top(50)] == [entry.pk for entry in index.ranking.top(50)]
    assert index.instance().is_ahead or not logger.warning.called, "nothing is pending in Redis"


# What may go wrong on the way


@pytest.fixture
def week(declare: Declare, clock: SetClock) -> type[RankIndex]:
    """An index of the points of a week, with one member whose duel was an hour ago."""
    index = declare(Competitor, "-week", get_queryset=rows(lambda found: found.annotate(week=recent(WEEK))))
    fight(clock.now - timedelta(hours=1), points=5)
    sync(index)
    return index


def fight(moment: datetime, points: int) -> Competitor:
    competitor = Competitor.objects.create()
    Duel.objects.create(competitor=competitor, points=points, fought_at=moment)
    return competitor


def scores(index: type[RankIndex]) -> list[float]:
    return list(contents(index).values())


def keep_in_step(index: type[RankIndex]) -> list[float]:
    sweep(index.instance())
    drain(index.instance())
    return scores(index)


def test_a_row_leaves_to_the_microsecond(week: type[RankIndex], clock: SetClock) -> None:
    clock.now += WEEK - timedelta(hours=1) - MICROSECOND
    assert keep_in_step(week) == [5]
    clock.now += MICROSECOND
    assert scores(week) == [5]
    assert keep_in_step(week) == []
    assert not Mark.objects.filter(index=week.instance().name).exists()


def test_who_is_between_the_end_of_a_window_and_the_sweep_is_no_difference(
    week: type[RankIndex], clock: SetClock
) -> None:
    clock.now += WEEK
    assert scores(week) == [5]
    assert verify(week.instance()).ok
    assert scores(week) == []


def test_a_push_that_was_ahead_is_taken_back(week: type[RankIndex], clock: SetClock) -> None:
    """No sweep has noted how far the clock was ahead: the write has."""
    player = Competitor.objects.get()
    Duel.objects.create(competitor=player, points=3, fought_at=clock.now + DAY)
    clock.now += WEEK
    push(week.instance(), [player.pk])
    assert scores(week) == [3]
    clock.now -= WEEK
    assert keep_in_step(week) == [8]


def test_a_removal_that_was_ahead_is_taken_back(week: type[RankIndex], clock: SetClock) -> None:
    """No row tells the time of the push."""
    player = Competitor.objects.get()
    clock.now += 2 * WEEK
    push(week.instance(), [player.pk])
    assert scores(week) == []
    clock.now -= 2 * WEEK
    assert keep_in_step(week) == [5]


def test_a_build_that_was_ahead_is_taken_back(week: type[RankIndex], clock: SetClock) -> None:
    """Its rows were read after the time that it notes itself."""
    other = fight(clock.now + DAY, points=7)
    right = clock.now

    def jump(index: RankIndex) -> int:
        clock.now = right + WEEK
        return int(right.timestamp() * 1e6)

    with mock.patch("django_zrank.windows.extension.now_of", jump):
        rebuild(week.instance())
    assert contents(week) == {str(other.pk): 7}
    clock.now = right
    assert sorted(keep_in_step(week)) == [5, 7]


@pytest.mark.parametrize("between", ["the sweep and its note", "two sweeps"])
def test_marks_that_were_processed_too_early_are_left_again(
    week: type[RankIndex], clock: SetClock, between: str
) -> None:
    """A sweep was ahead, and the clock was set back before its marks were processed."""
    right = clock.now
    clock.now += WEEK
    noted = WindowStore.note_swept

    def late(store: WindowStore, *args: Any) -> bool:
        if between != "two sweeps":
            clock.now = right
            drain(week.instance())
            clock.now += WEEK
        return noted(store, *args)

    with mock.patch.object(WindowStore, "note_swept", late):
        assert sweep(week.instance()) == 1
    if between == "two sweeps":
        clock.now = right
        drain(week.instance())
        clock.now += WEEK
        WindowStore.of(week.instance()).begin_sweep()  # another one, which is killed
    assert scores(week) == [5]
    assert keep_in_step(week) == []


def test_a_sweep_during_which_another_one_began_notes_nothing(week: type[RankIndex], clock: SetClock) -> None:
    store = WindowStore.of(week.instance())
    first, second = store.begin_sweep(), store.begin_sweep()
    assert not store.note_swept(first, 5, 5)
    assert store.note_swept(second, 5, 5)


def test_a_worker_sweeps_every_second_and_saves_every_five(
    week: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, sweeps = 0.0, list[float]()
    monkeypatch.setattr(upkeep, "_done", Recent())
    monkeypatch.setattr("django_zrank.recent.monotonic", lambda: 100 + passed)
    monkeypatch.setattr(Windows, "work", lambda *args, **options: sweeps.append(passed) or 0)
    for passed in (0.0, 0.5, 0.9, 1.0, 1.5, 2.0):  # noqa: B007 - read by the clock
        sync(week, look=False, due=upkeep.is_due)
    assert sweeps == [0.0, 1.0, 2.0]
    for passed in (10.0, 11.0, 14.9, 15.0):  # noqa: B007
        upkeep.work_soon(week.instance())
    assert sweeps[3:] == [10.0, 15.0]


def test_a_slow_sweep_rests(week: type[RankIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    """A column without an index is read whole: for a twentieth of a worker's time, or every five seconds."""
    now, took, sweeps = 100.0, 0.0, list[float]()

    def work(*args: Any, **options: Any) -> int:
        nonlocal now
        sweeps.append(now)
        now += took
        return 0

    monkeypatch.setattr(upkeep, "_done", Recent())
    monkeypatch.setattr("django_zrank.recent.monotonic", lambda: now)
    monkeypatch.setattr("django_zrank.sync.watch.monotonic", lambda: now)
    monkeypatch.setattr(Windows, "work", work)
    for at, took in ((100, 0.04), (101, 0.2), (104, 0.2), (106, 2.0), (112, 0.0), (113, 0.0)):  # noqa: B007
        now = at
        sync(week, look=False, due=upkeep.is_due)
    assert sweeps == [100, 101, 106, 113]


def test_a_sweep_that_finds_nobody_makes_three_queries(week: type[RankIndex], clock: SetClock) -> None:
    """A worker that sweeps every second can afford them."""
    sweep(week.instance())
    clock.now += timedelta(seconds=1)
    with CaptureQueriesContext(connection) as queries:
        assert sweep(week.instance()) == 0
    assert len(queries) == 3


def test_a_sweep_finds_rows_of_members_that_it_does_not_rank_yet(
    week: type[RankIndex], clock: SetClock
) -> None:
    """A row that is inserted after the sweep has passed it needs none: it leaves a mark of its own."""
    clock.now += 3 * WEEK
    keep_in_step(week)
    late = fight(clock.now - WEEK + DAY, points=9)
    Duel.objects.bulk_create(
        [Duel(competitor=late, points=1, fought_at=clock.now - WEEK + n * DAY) for n in range(3)]
    )
    drain(week.instance())
    assert scores(week) == [11]
    clock.now += DAY
    assert keep_in_step(week) == [1]


def test_several_columns_are_swept_in_pieces(declare: Declare, clock: SetClock) -> None:
    index = declare(
        Competitor,
        "-points",
        get_queryset=rows(lambda found: found.filter(joined__within=WEEK).annotate(week=recent(2 * WEEK))),
        facets=("week",),
    )
    Competitor.objects.bulk_create(
        Competitor(points=n, joined=clock.now - timedelta(hours=n)) for n in range(40)
    )
    sync(index)
    assert len(scores(index)) == 40
    clock.now += WEEK
    assert sweep(index.instance(), limit=15) == 15
    drain(index.instance())
    assert len(scores(index)) == 25
    assert keep_in_step(index) == []


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "Europe/Berlin"])
@pytest.mark.parametrize("aware", [True, False])
def test_dates_and_times_in_zones(
    declare: Declare, clock: SetClock, settings: Any, zone: str, aware: bool
) -> None:
    if not aware and connection.vendor == "postgresql":
        pytest.skip("its columns hold times with their zones")
    settings.TIME_ZONE, settings.USE_TZ = zone, aware
    clock.now = datetime(2026, 3, 27, 23, tzinfo=ZoneInfo(zone))  # Europe sets its clocks on the 29th
    at = clock.now.astimezone(UTC) if aware else clock.now.replace(tzinfo=None)
    both = rows(lambda found: found.annotate(week=recent(WEEK), days=recent(3 * DAY, "fought_on")))
    index = declare(Competitor, "-points", get_queryset=both, facets=("week", "days"))
    player = Competitor.objects.create(points=1)
    Duel.objects.create(competitor=player, points=5, fought_at=at, fought_on=date(2026, 3, 27))
    sync(index)

    def held() -> dict[str, int | None]:
        sweep(index.instance())
        drain(index.instance())
        assert verify(index.instance()).ok
        return {name: index.ranking.filter(**{name: 5}).count() for name in ("week", "days")}

    assert held() == {"week": 1, "days": 1}
    clock.now = datetime(2026, 3, 29, 23, 59, 59, 999999, tzinfo=ZoneInfo(zone))
    assert held() == {"week": 1, "days": 1}
    clock.now = datetime(2026, 3, 30, tzinfo=ZoneInfo(zone))
    assert held() == {"week": 1, "days": 0}
    # Seven times 24 hours; if the database holds local times, seven days of the calendar.
    local = datetime(2026, 4, 3, 23, tzinfo=ZoneInfo(zone))
    clock.now = (at + WEEK if aware else local).astimezone(UTC) - MICROSECOND
    assert held() == {"week": 1, "days": 0}
    clock.now += MICROSECOND
    assert held() == {"week": 0, "days": 0}


def test_another_period_is_another_declaration(declare: Declare) -> None:
    """Another time isn't."""

    def declaring(period: timedelta) -> str:
        queryset = rows(lambda found: found.annotate(week=recent(period)))
        return declare(Competitor, "-week", get_queryset=queryset).instance().declaration

    assert declaring(WEEK) == declaring(WEEK)
    assert declaring(WEEK) != declaring(WEEK + MICROSECOND)


@pytest.mark.parametrize("period", [7, None, -DAY, timedelta(days=40000), "7 days"])
def test_a_period_is_a_timedelta(period: Any) -> None:
    with pytest.raises(ValueError, match="within: expected a timedelta from 0 to 100 years"):
        Duel.objects.filter(fought_at__within=period)
