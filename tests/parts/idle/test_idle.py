"""Members that sleep: they leave the rankings, are woken, and touches are written to their column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from django_zrank import IndexUnavailable, NotRanked, RankIndex
from django_zrank.capture.triggers import drop
from django_zrank.idle import extension
from django_zrank.idle.awake import Awake
from django_zrank.idle.extension import Idle
from django_zrank.idle.touching import Touching, touched_key
from django_zrank.models import Build, Mark
from django_zrank.queries.counts import Size
from django_zrank.queries.view import View
from django_zrank.sync import marks
from django_zrank.sync.drain import drain
from django_zrank.sync.push import forget as forget_build
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.windows import sweep as sweep_module
from django_zrank.windows.extension import Windows
from django_zrank.windows.lookup import MOMENT
from django_zrank.windows.store import WindowStore
from django_zrank.windows.sweep import now_of, sweep
from django_zrank.write_behind.flush import flush
from tests.parts.windows.clock import database_clock
from tests.rankings import answer_by_sql
from tests.sync.interruptions import just_before
from tests.sync.mirror import contents
from tests.test_async_versions import Both, verbs
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Player, Tag, Ticket, Video
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

MONTH = timedelta(days=30)
DAY = timedelta(days=1)

Declare = Callable[..., type[RankIndex]]


@pytest.fixture
def videos(request: pytest.FixtureRequest, declare: Declare) -> Iterator[type[RankIndex]]:
    """An index of videos that were seen within a month."""
    facets: dict[str, Any] = {"facets": ("region",), "write_behind": "increment"}
    others = {} if getattr(request, "param", "") == "plain" else facets
    index = declare(Video, "-views", idle=("seen", MONTH), **others)
    sync(index)
    yield index
    drop("default", [index.instance().name])


def make(*days: float | None) -> list[Video]:
    """Videos that were seen so many days ago; None: never."""
    now = timezone.now()
    return [
        Video.objects.create(views=n, region="ab"[n % 2], seen=None if ago is None else now - ago * DAY)
        for n, ago in enumerate(days)
    ]


def ranked(index: type[RankIndex]) -> set[int]:
    return {int(member) for member in contents(index)}


def awake() -> set[int]:
    """The oracle: members that were seen within a month, in plain Python."""
    rows = Video.objects.filter(seen__isnull=False, views__isnull=False).values_list("pk", "seen")
    return {pk for pk, seen in rows if seen > timezone.now() - MONTH}


@contextmanager
def later(by: timedelta) -> Iterator[None]:
    """Make the database's clock as it is after a while."""
    with database_clock(lambda: datetime.now(UTC) + by):
        yield


def store_of(index: type[RankIndex]) -> WindowStore:
    return WindowStore.of(index.instance())


def clean(index: type[RankIndex]) -> bool:
    return verify(index.instance()).ok


# Sleeping


def test_who_falls_asleep_between_two_pushes_leaves(videos: type[RankIndex]) -> None:
    """A sweep leaves one mark. If its push read as of the push before, nobody would look for that member again."""
    with mock.patch.object(timezone, "now", return_value=timezone.now() - DAY):
        (video,) = make(29.5)
        push(videos.instance(), [video.pk])
    push(videos.instance(), [video.pk])
    assert ranked(videos) == awake() == set()


@pytest.mark.part("sql")
def test_who_was_never_seen_or_long_ago_is_not_ranked(videos: type[RankIndex]) -> None:
    made = make(1, 29, 31, None)
    assert ranked(videos) == {video.pk for video in made[:2]} == awake()
    assert answer_by_sql(videos.instance(), (), Size(), View(videos.instance().layout)) == 2
    rebuild(videos.instance())
    assert ranked(videos) == awake()
    assert clean(videos)


@pytest.mark.parametrize("videos", ["plain", "facets"], indirect=True)
def test_members_fall_asleep_without_a_write_to_their_row(videos: type[RankIndex]) -> None:
    made = make(1, 10, 20)
    with later(15 * DAY):
        assert sync(videos).worked["windows"] == 1
        assert ranked(videos) == {video.pk for video in made[:2]}
        assert sync(videos).worked["windows"] == 0
        assert clean(videos)
    assert not Mark.objects.filter(index=videos.instance().name).exists()
    for video in made:
        before = video.seen
        video.refresh_from_db()
        assert video.seen == before


@pytest.mark.parametrize("most", [2, 1], ids=["marked", "rebuilt"])
def test_a_clock_that_is_set_forward_and_back(
    videos: type[RankIndex], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that it took for idle in the meantime are awake again, though nobody has written to their rows."""
    monkeypatch.setattr(sweep_module, "PAGE_SIZE", most)
    made = make(1, 10, 20, 40)
    with later(25 * DAY):
        assert sync(videos).worked["windows"] == 2
        assert ranked(videos) == {made[0].pk}
    assert sync(videos).rebuilt == (most == 1)
    assert ranked(videos) == {video.pk for video in made[:3]} == awake()
    assert sync(videos).worked["windows"] == 0
    assert clean(videos)
    with later(15 * DAY):
        assert sync(videos).worked["windows"] == 1
        assert ranked(videos) == {video.pk for video in made[:2]}


def test_a_sweep_goes_in_pieces(videos: type[RankIndex]) -> None:
    at = timezone.now() - 20 * DAY
    Video.objects.bulk_create(
        Video(views=n, seen=at) for n in range(70)
    )  # of one moment: the key tells them apart
    Video.objects.bulk_create(Video(views=n, seen=at + DAY) for n in range(30))
    drain(videos.instance())
    with later(15 * DAY), mock.patch.object(sweep_module, "PAGE_SIZE", 16):
        assert len(ranked(videos)) == 100
        # All of one moment go together.
        assert sweep(videos.instance(), limit=40) == 70
        assert sweep(videos.instance()) == 30
        assert sweep(videos.instance()) == 0
        drain(videos.instance())
        assert ranked(videos) == set()


def test_a_column_of_another_row_tells_too(declare: Declare) -> None:
    index = declare(Player, "-level", idle=("user__last_login", MONTH))
    sync(index)
    now = timezone.now()
    users = [User.objects.create(username=str(ago), last_login=now - ago * DAY) for ago in (1, 20, 40)]
    players = [Player.objects.create(level=1, user=user) for user in [*users, None]]
    assert ranked(index) == {player.pk for player in players[:2]}
    User.objects.filter(pk=users[2].pk).update(last_login=now)
    drain(index.instance())
    assert ranked(index) == {player.pk for player in players[:3]}
    with later(15 * DAY):
        assert sync(index).worked["windows"] == 1
        assert ranked(index) == {players[0].pk, players[2].pk}
        assert clean(index)
    drop("default", [index.instance().name])


def test_sleepers_leave_every_ranking(declare: Declare) -> None:
    """Of several criteria, in facets with several values, and where scores are counted for dense ranks."""
    shared: dict[str, Any] = {"idle": ("joined", MONTH), "facets": ("region", "tags"), "method": KEEPING}
    criteria = declare(Competitor, "-points", get_order=lambda index: ("-points", "lost"), **shared)
    dense = declare(Competitor, "-points", **shared)
    tags = [Tag.objects.create(word=word) for word in "xy"]
    now = timezone.now()
    for n in range(12):
        one = Competitor.objects.create(
            points=n // 3, lost=n, region="ab"[n % 2], joined=now - (20 if n % 3 else 1) * DAY
        )
        one.tags.set(tags[: n % 3])
    for index in (criteria, dense):
        sync(index)
        with later(15 * DAY):
            assert sync(index).worked["windows"] == 8
            assert len(ranked(index)) == 4
            assert clean(index)
    drop("default", [criteria.instance().name, dense.instance().name])


def test_a_sweep_goes_on_while_others_write(videos: type[RankIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    """More members than a query reads at once. On SQLite, whoever is still reading rows can't write if others have."""
    index, seen = videos.instance(), timezone.now() - 29 * DAY
    Video.objects.bulk_create([Video(views=n, seen=seen) for n in range(2100)])
    rebuild(index)
    briefly = marks.briefly

    def after_another(*args: Any, **how: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(touch_another).result()
        return briefly(*args, **how)

    def touch_another() -> None:
        Video.objects.create(views=1)
        connection.close()

    monkeypatch.setattr(marks, "briefly", after_another)
    with later(2 * DAY):
        assert sweep(index, patience=0.0) == 2100


def test_the_sweep_finds_everyone_a_rebuild_took_for_awake(videos: type[RankIndex]) -> None:
    random = Random(7)
    make(*(random.choice([None, random.uniform(0, 60)]) for _ in range(60)))
    rebuild(videos.instance())
    for days in (5, 9, 14, 29):
        with later(days * DAY):
            sync(videos)
            period = MONTH - days * DAY
            rows = Video.objects.exclude(seen=None).values_list("pk", "seen")
            assert ranked(videos) == {pk for pk, seen in rows if seen > timezone.now() - period}
            if days == 9:
                rebuild(videos.instance())
            assert clean(videos)


def test_verify_repairs_who_should_have_been_swept(videos: type[RankIndex]) -> None:
    make(1, 20)
    index = videos.instance()
    drain(index)
    with later(15 * DAY):
        store = store_of(videos)
        since = now_of(index)
        assert since
        assert store.note_swept(store.begin_sweep(), since, since)  # as if they had been removed
        assert sweep(index) == 0
        assert len(ranked(videos)) == 2
        assert not clean(videos)
        assert verify(index, repair=True).repaired == 1
        assert clean(videos)
        assert len(ranked(videos)) == 1


def test_who_falls_asleep_while_verify_reads_is_no_difference(videos: type[RankIndex]) -> None:
    make(1, 20)
    drain(videos.instance())
    calls: list[int] = []

    def late(extension: Windows, index: RankIndex, **how: Any) -> int:
        calls.append(1)
        return sweep(index) if len(calls) > 1 else 0  # who falls asleep after the first look's sweep

    with later(15 * DAY), mock.patch.object(Windows, "work", late):
        report = verify(videos.instance())
    assert len(calls) > 1
    assert report.ok
    assert report.unsettled == 0


def test_another_server_or_build_is_not_told_of_a_sweep_it_lacks(videos: type[RankIndex]) -> None:
    store = store_of(videos)
    since = store.begin_sweep()
    assert not store.note_swept(since._replace(term=str(int(since.term) + 1)), 5, 5)
    assert not store.note_swept(since._replace(build="another"), 5, 5)
    again = store.begin_sweep()
    assert again._replace(nonce=since.nonce) == since
    assert not store.note_swept(since, 5, 5)  # another one has begun
    assert store.note_swept(again, 5, 5)
    since = store.begin_sweep()
    assert since.moment == 5
    store.client.hset(store.keys.meta, "server", "another")
    assert not store.note_swept(since, 6, 6)


def test_a_sweep_goes_on_from_what_its_server_was_told(
    videos: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(20, 10)
    index, store = videos.instance(), store_of(videos)
    since = store.begin_sweep()

    def fail_over() -> None:
        """Another server is trusted, that lacks the last note."""
        store.client.hincrby(store.keys.meta, "term", 1)
        Build.objects.update(term=F("term") + 1)
        forget_build(index)

    with later(15 * DAY):
        just_before(monkeypatch, sweep_module, "leave", fail_over)
        assert sweep(index) == 1
        assert store.begin_sweep().moment == since.moment
        assert sweep(index) == 1


def test_a_build_of_another_period_knows_nothing_of_older_sweeps(videos: type[RankIndex]) -> None:
    make(1, 20)
    index, store = videos.instance(), store_of(videos)
    with later(29 * DAY):
        rebuild(index)  # of a shorter period: swept up to yesterday
    with mock.patch.object(WindowStore, "note_swept", side_effect=KeyboardInterrupt):
        rebuild(index)
    assert store.begin_sweep().moment == pytest.approx(timezone.now().timestamp() * 1e6, abs=1e10)


# Waking


def test_a_save_wakes(videos: type[RankIndex]) -> None:
    (video,) = make(31)
    video.seen = timezone.now()
    video.save()
    assert ranked(videos) == {video.pk}


@pytest.mark.parametrize("videos", ["plain", "facets"], indirect=True)
def test_a_touch_wakes_with_one_query(videos: type[RankIndex]) -> None:
    long_ago, never = make(31, None)
    videos.scores.touch([long_ago, never])
    assert ranked(videos) == {long_ago.pk, never.pk} == awake()
    assert clean(videos)


def test_a_touch_finds_a_member_without_a_membership(declare: Declare) -> None:
    """An index of integers that may be wide has memberships, but of the wide ones alone."""
    video = Video.objects.create(seen=timezone.now())
    index = declare(Video, "-total", idle=("seen", MONTH))
    sync(index)
    index.scores.touch(video)
    with CaptureQueriesContext(connection) as queries:
        index.scores.touch(video)
    assert not queries


def test_a_touch_of_no_row_or_of_a_sleeper_inside_a_transaction_is_refused(videos: type[RankIndex]) -> None:
    with pytest.raises(NotRanked):
        videos.scores.touch(4711)
    (video,) = make(31)
    with pytest.raises(NotRanked), transaction.atomic():
        videos.scores.touch(video)
    assert ranked(videos) == set()
    Video.objects.update(views=None)
    with pytest.raises(NotRanked):
        videos.scores.touch(video)


def test_a_change_of_a_sleeper_whose_row_is_locked_is_refused(declare: Declare) -> None:
    """On SQLite there are no such rows."""
    index = declare(Video, "-views", idle=("seen", MONTH), write_behind="increment")
    rebuild(index.instance())
    (video,) = make(31)
    with (
        mock.patch.object(Idle, "rouse", lambda self, index, pks: list(pks)),
        pytest.raises(IndexUnavailable, match=f"{video.pk} can't be touched"),
    ):
        index.scores.increment(video)
    assert index.scores.increment(video, 5) == 5


def test_an_increment_wakes_and_counts_as_a_touch(declare: Declare) -> None:
    index = declare(Video, "-views", idle=("seen", MONTH), write_behind="increment")
    rebuild(index.instance())
    sleeping, watched = make(31, 20)
    assert index.scores.increment({sleeping: 5, watched: 7}) == {sleeping: 5, watched: 8}
    flush(index.instance())
    drain(index.instance())
    assert ranked(index) == {sleeping.pk, watched.pk}
    with later(15 * DAY):
        sync(index)
        assert ranked(index) == {sleeping.pk, watched.pk}
    assert contents(index) == {str(sleeping.pk): 5, str(watched.pk): 8}
    assert dict(Video.objects.values_list("pk", "views")) == {sleeping.pk: 5, watched.pk: 8}


@pytest.mark.parametrize("error", [NotRanked, IndexUnavailable, DatabaseError])
def test_a_change_that_is_made_does_not_fail_by_its_touch(
    videos: type[RankIndex], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told that it failed makes it again."""
    (video,) = make(20)
    with mock.patch.object(extension, "touch", side_effect=error):
        assert videos.scores.increment(video, 5) == 5
    assert "not recorded for idle" in caplog.text
    assert contents(videos) == {str(video.pk): 5}


# Touches


def test_the_column_is_written_and_then_rests(videos: type[RankIndex], round_trips: list[str]) -> None:
    """Until then a touch is one round trip and no query."""
    (video,) = make(20)
    store = store_of(videos)
    videos.scores.touch(video)
    video.refresh_from_db()
    assert timezone.now() - video.seen < DAY
    first = video.seen
    round_trips.clear()
    with CaptureQueriesContext(connection) as queries:
        videos.scores.touch(video)
    assert (len(round_trips), len(queries)) == (1, 0)
    video.refresh_from_db()
    assert video.seen == first
    store.client.zadd(touched_key(store.keys), {str(video.pk): 0})  # it has rested
    videos.scores.touch(video)
    video.refresh_from_db()
    assert video.seen > first
    assert clean(videos)


def test_nothing_is_kept_of_whom_nobody_touches(videos: type[RankIndex]) -> None:
    made = make(*[1] * 5)
    store = store_of(videos)
    videos.scores.touch(*made[:3])
    store.client.zadd(touched_key(store.keys), {str(video.pk): 0 for video in made[:3]})
    videos.scores.touch(made[4])
    assert store.client.zrange(touched_key(store.keys), 0, -1) == [str(made[4].pk).encode()]


def test_no_column_goes_back(videos: type[RankIndex]) -> None:
    (video,) = make(20)
    seen = timezone.now() + timedelta(seconds=30)
    Video.objects.update(seen=seen)  # by somebody else, meanwhile
    videos.scores.touch(video)
    video.refresh_from_db()
    assert video.seen == seen


def test_a_touch_inside_a_transaction_is_written_after_it(videos: type[RankIndex]) -> None:
    (video,) = make(20)
    with transaction.atomic():
        videos.scores.touch(video)
        video.refresh_from_db()
        assert timezone.now() - video.seen > DAY
    video.refresh_from_db()
    assert timezone.now() - video.seen < DAY
    store_of(videos).client.delete(touched_key(store_of(videos).keys))
    Video.objects.update(seen=timezone.now() - 20 * DAY)
    with suppress(KeyError), transaction.atomic():
        videos.scores.touch(video)
        raise KeyError
    videos.scores.touch(video)  # as the first one was rolled back
    video.refresh_from_db()
    assert timezone.now() - video.seen < DAY


def test_a_touch_that_was_not_written_is_written_again(videos: type[RankIndex]) -> None:
    (video,) = make(20)

    def fail(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise DatabaseError("down")

    with connection.execute_wrapper(fail), pytest.raises(DatabaseError):
        videos.scores.touch(video)
    videos.scores.touch(video)
    video.refresh_from_db()
    assert timezone.now() - video.seen < DAY


def test_who_was_touched_does_not_fall_asleep(videos: type[RankIndex]) -> None:
    made = make(20, 20)
    videos.scores.touch(made[0])
    with later(15 * DAY):
        assert sweep(videos.instance()) == 1
        drain(videos.instance())
        assert ranked(videos) == {made[0].pk}
        assert clean(videos)


@pytest.mark.parametrize("synced", [True, False])
def test_a_rebuild_knows_who_was_touched(videos: type[RankIndex], synced: bool) -> None:
    video, _ = make(20, 20)
    videos.scores.touch(video)
    if synced:
        sync(videos)
    with later(15 * DAY):
        rebuild(videos.instance())
        drain(videos.instance())
        assert ranked(videos) == {video.pk}


def test_a_sweep_removes_nobody_who_was_written_since_it_looked(videos: type[RankIndex]) -> None:
    index, (video, other) = videos.instance(), make(20, 20)
    with later(15 * DAY):
        assert sweep(index) == 2
        videos.scores.touch(video)
        drain(index)
        assert ranked(videos) == {video.pk}
    assert other.pk not in ranked(videos)


def test_a_sweep_that_was_killed_is_done_again(videos: type[RankIndex]) -> None:
    index, made = videos.instance(), make(20, 1)
    with later(15 * DAY):
        with (
            mock.patch.object(WindowStore, "note_swept", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            sweep(index)
        assert sync(index).worked["windows"] == 1
        assert ranked(videos) == {made[1].pk}
        assert clean(videos)


def test_a_column_that_is_moved_back_and_forward(videos: type[RankIndex]) -> None:
    index = videos.instance()
    made = make(1, 2, 3, 40)
    videos.scores.touch(made[0])
    Video.objects.update(seen=timezone.now() - 60 * DAY)
    drain(index)
    assert ranked(videos) == set()
    videos.scores.touch(made[0])  # though its column was written a moment ago
    assert ranked(videos) == {made[0].pk} == awake()
    Video.objects.update(seen=timezone.now())
    drain(index)
    assert ranked(videos) == {video.pk for video in made}
    Video.objects.exclude(pk=made[1].pk).update(seen=None)
    drain(index)
    assert ranked(videos) == {made[1].pk} == awake()
    assert clean(videos)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="its columns hold times with their zones")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_touches_without_time_zones(videos: type[RankIndex], settings: Any, zone: str) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    (video,) = make(20)
    videos.scores.touch(video)
    video.refresh_from_db()
    assert abs(timezone.now() - video.seen) < timedelta(minutes=5)


def test_a_touch_that_the_database_refuses_keeps_no_other_waiting(videos: type[RankIndex]) -> None:
    made = make(20, 20, 20)
    refused = made[1].pk

    def constraint(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and refused in params:
            raise IntegrityError("constraint")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(constraint):
        videos.scores.touch(*made)
    recent = {pk for pk, seen in Video.objects.values_list("pk", "seen") if timezone.now() - seen < DAY}
    assert recent == {made[0].pk, made[2].pk}


def test_touches_are_of_indexes_that_declare_idle(declare: Declare) -> None:
    index = declare(Video, "-views")
    with pytest.raises(TypeError, match=r"touch\(\) needs idle with .* declares None"):
        index.scores.touch(1)
    other = declare(Video, "-views", idle=("seen", MONTH))
    with pytest.raises(ValueError, match="at most 1000"):
        other.scores.touch(*range(1001))
    assert other.scores.touch() is None


# Declarations


def test_an_index_that_uses_none_of_it_keeps_nothing(declare: Declare, zrank: Redis) -> None:
    index = declare(Video, "-views")
    rebuild(index.instance())
    make(1, None)
    sync(index)
    store = store_of(index)
    assert store.begin_sweep().moment is None
    assert len(ranked(index)) == 2
    with CaptureQueriesContext(connection) as queries:
        assert (sweep(index.instance()), flush(index.instance())) == (0, 0)
    assert len(queries) == 0


def test_another_period_is_another_declaration(declare: Declare) -> None:
    digests = {
        declare(Video, "-views", idle=idle).instance().declaration
        for idle in (None, ("seen", MONTH), ("seen", DAY))
    }
    assert len(digests) == 3
    assert Awake.parse(Video, None) is None


def test_the_time_zone_of_a_request_keeps_no_member_awake(declare: Declare) -> None:
    """Whichever process sweeps: the next one would not look for that member again."""
    year = {"get_queryset": lambda self: Ticket.objects.filter(moment__year=2026)}
    index = declare(Ticket, "-integer", idle=("moment", timedelta(days=30)), **year).instance()
    moment = datetime(2026, 12, 31, 23, tzinfo=UTC)
    ticket = Ticket.objects.create(integer=1, moment=moment)
    with mock.patch.object(Awake, "condition", return_value=models.Q()):
        rebuild(index)
    assert contents(type(index)) == {str(ticket.pk): 1}
    with (
        timezone.override("Asia/Tokyo"),
        mock.patch.object(sweep_module, "now_of", return_value=MOMENT.whole(moment + MONTH)),
    ):
        WindowStore.of(index).note_swept(WindowStore.of(index).begin_sweep(), 0, 0)
        assert sweep(index) == 1


# Shards


def test_members_of_all_shards_fall_asleep(declare: Declare) -> None:
    index = declare(Video, "-total", idle=("seen", timedelta(days=3)), shards=3)
    now = timezone.now()
    Video.objects.bulk_create(Video(total=n, seen=now - timedelta(days=1 + n % 2)) for n in range(12))
    sync(index)
    with later(timedelta(days=1.5)):
        assert sync(index).worked["windows"] == 6
        assert sum(WindowStore.of(part).size() for part in index.instance().holders) == 6


def test_a_sweep_up_to_a_limit_reads_few_pages(declare: Declare) -> None:
    index = declare(Video, "-total", idle=("seen", timedelta(days=3)), shards=7)
    seen = timezone.now() - timedelta(days=2)
    Video.objects.bulk_create(Video(total=n, seen=seen + timedelta(microseconds=n)) for n in range(140))
    sync(index)
    with later(timedelta(days=2)), CaptureQueriesContext(connection) as queries:
        assert sweep(index.instance(), limit=50) == 50
        assert len(queries) <= 20
        drain(index.instance())
        assert sum(WindowStore.of(part).size() for part in index.instance().holders) == 90
        assert sweep(index.instance()) == 90


# Touches, in coroutines, too


@pytest.mark.parametrize("way", [lambda scores: scores, Both], ids=["blocking", "coroutine"])
def test_touches(way: Callable[[Any], Any], declare: Declare) -> None:
    index = declare(Video, "-views", idle=("seen", timedelta(days=30)))
    rebuild(index.instance())
    assert verbs(Touching) == {"touch"}
    never = Video.objects.create(views=5)
    assert way(index.scores).touch(never) is None
    assert contents(index) == {str(never.pk): 5}
    with pytest.raises(NotRanked, match="999 is not ranked"):
        way(index.scores).touch(never, 999)
    with pytest.raises(TypeError, match=r"touch\(\) needs idle with .* declares None"):
        way(PlayerAscending.scores).touch(never)
