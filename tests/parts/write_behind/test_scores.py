"""Write-behind scores: every operation, in every ranking, and on their way to the column."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable, NotBuilt
from django_zrank.models import Batch, Build
from django_zrank.recent import Recent
from django_zrank.sync import push as push_module
from django_zrank.sync import upkeep
from django_zrank.sync import verify as verification
from django_zrank.sync.drain import drain
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.marks import forget_batches
from django_zrank.sync.push import push, read
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.write_behind import flush as flush_module
from django_zrank.write_behind.extension import WriteBehind
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.keys import pending_key
from django_zrank.write_behind.store import PendingStore
from tests.sync.mirror import contents
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank
from tests.writes import apply_changes, begin_write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = VideoRank.instance()
STORE = PendingStore.of(INDEX)

Declare = Callable[..., type[RankIndex]]


@pytest.fixture
def videos() -> list[Video]:
    """Three videos, of 10, 20 and 30 views."""
    videos = [Video.objects.create(views=views) for views in (10, 20, 30)]
    assert contents(VideoRank) == {str(video.pk): video.views for video in videos}
    return videos


def column(index: type[RankIndex] = VideoRank) -> dict[str, Any]:
    """Member -> value, of every row."""
    path = index.instance().ordering.first.path
    return {str(pk): value for pk, value in index.instance().model.objects.values_list("pk", path)}


def pending() -> dict[str, int]:
    found: Any = STORE.client.hgetall(pending_key(STORE.keys))
    return {member.decode(): int(change) for member, change in found.items()}


# Operations


def test_an_increment_is_ranked_at_once_and_in_the_column_after_a_flush(videos: list[Video]) -> None:
    first, second, _ = videos
    assert VideoRank.scores.increment(first) == 11
    assert VideoRank.scores.increment(first.pk, 3) == 14
    assert VideoRank.scores.increment({first: 1, second: -5}) == {first: 15, second: 15}
    assert VideoRank.ranking.score(first) == 15
    assert column()[str(first.pk)] == 10
    assert flush(INDEX) == 2
    assert column() == {str(video.pk): views for video, views in zip(videos, (15, 15, 30), strict=True)}
    assert contents(VideoRank) == column()
    assert (pending(), flush(INDEX)) == ({}, 0)


def test_an_increment_is_one_round_trip_and_no_query(
    videos: list[Video], round_trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    VideoRank.scores.increment(videos[0])
    monkeypatch.setattr(VideoRank.ranking._reader._write_trust, "until", float("inf"))
    del round_trips[:]
    with CaptureQueriesContext(connection) as queries:
        VideoRank.scores.increment(videos[0])
    assert (round_trips, len(queries)) == (["increment_scores"], 0)


def test_decimals_are_exact(declare: Declare) -> None:
    index = declare(Video, "-price", write_behind="increment")
    video = Video.objects.create(price=Decimal("0.10"))
    assert index.scores.increment(video, Decimal("0.20")) == Decimal("0.30")
    with pytest.raises(
        ValueError, match=r"by: expected a number of 2 decimal places, not Decimal\('0.001'\)"
    ):
        index.scores.increment(video, Decimal("0.001"))
    flush(index.instance())
    assert column(index) == {str(video.pk): Decimal("0.30")}


@pytest.mark.parametrize("facets", [(), ("region",)])
@pytest.mark.parametrize("rebuilds", [False, True])
def test_what_is_pending_is_added_unless_tie_bytes_make_the_score_exact(
    declare: Declare, facets: tuple[str, ...], rebuilds: bool
) -> None:
    index = declare(Video, "-total", write_behind="increment", facets=facets)
    videos = [Video.objects.create(total=n, region="a") for n in range(3)]
    index.scores.increment(dict.fromkeys(videos, 1000))
    for video, total in zip(videos, (100, 2**60, 200), strict=True):
        Video.objects.filter(pk=video.pk).update(total=total)
    if rebuilds:
        rebuild(index.instance())
    else:
        push(index.instance(), [video.pk for video in videos])
    assert [index.ranking.score(video) for video in videos] == [1100, 2**60, 1200]
    assert not verify(index.instance()).drift


# Together with rows


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begins a flush that is killed at one of its steps."""

    class Killed(BaseException):
        pass

    def kill(*args: Any, **kwargs: Any) -> None:
        raise Killed

    def begin(where: Any, step: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(where, step, kill)
            with pytest.raises(Killed):
                flush(INDEX)

    return begin


def test_rows_older_than_the_flushes_that_are_kept_are_read_again(videos: list[Video]) -> None:
    first = videos[0]
    VideoRank.scores.increment(first)
    flush(INDEX)
    epoch = begin_write(STORE)
    changes = list(read(INDEX, [first.pk], STORE))
    for _ in range(10):
        VideoRank.scores.increment(first)
        flush(INDEX)
    assert apply_changes(STORE, epoch, changes) is None
    assert contents(VideoRank)[str(first.pk)] == 21


def test_members_without_a_row_are_removed_whatever_was_flushed_meanwhile(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush that the batch before has read of says nothing about a batch that finds no row."""
    first, second, _ = videos
    Video.objects.filter(pk=second.pk)._raw_delete("default")

    def overtaken(index: Any, pks: Any, *stores: Any) -> Any:
        if pks == [second.pk]:
            for _ in range(10):
                VideoRank.scores.increment(first)
                flush(INDEX)
        return read(index, pks, *stores)

    monkeypatch.setattr(push_module, "_BATCH", 1)
    monkeypatch.setattr(push_module, "read", overtaken)
    push(INDEX, [first.pk, second.pk])
    assert str(second.pk) not in contents(VideoRank)


def test_no_more_flushes_begin_in_a_rebuild_than_are_kept(videos: list[Video]) -> None:
    health = STORE.check_health()
    building = INDEX.new_build()
    STORE.start_rebuild(building, owner=health.owner, server=health.server, term=int(health.term))
    done = 0
    for _ in range(70):
        VideoRank.scores.increment(videos[0])
        done += flush(INDEX)
    assert done == 64
    STORE.abandon_rebuild(building)
    assert flush(INDEX) == 1
    assert len(STORE.client.keys(f"{pending_key(STORE.keys)}:*")) <= 8  # type: ignore[arg-type]
    assert column()[str(videos[0].pk)] == 80


# Flushes


def test_a_save_of_an_older_instance_leaves_a_deferred_column_alone(videos: list[Video]) -> None:
    """As docs/scores.md recommends."""
    older = Video.objects.defer("views").get(pk=videos[0].pk)
    VideoRank.scores.increment(older, 5)
    flush(INDEX)
    older.region = "x"
    older.save()
    assert column()[str(older.pk)] == 15 == VideoRank.ranking.score(older)


def test_many_members_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    Video.objects.bulk_create(Video(views=n) for n in range(1200))
    drain(INDEX)
    monkeypatch.setattr(flush_module, "BATCH_SIZE", 300)
    pks = list(Video.objects.order_by("pk").values_list("pk", flat=True))
    for start in range(0, 1200, 150):
        VideoRank.scores.increment(dict.fromkeys(pks[start : start + 150], 7))
    assert flush(INDEX) == 1200
    assert {int(pk): value for pk, value in column().items()} == {pk: n + 7 for n, pk in enumerate(pks)}
    assert Build.objects.get(index=INDEX.name).flushed >= 3
    assert Batch.objects.filter(index=INDEX.name, flush__isnull=False).count() >= 3


def test_what_the_database_refuses_is_given_up_alone(
    videos: list[Video], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, _ = videos
    VideoRank.scores.increment({first: 5, second: 5})
    Video.objects.filter(pk=first.pk).update(views=2**31 - 2)
    flush(INDEX)
    drain(INDEX)
    assert column()[str(second.pk)] == 25
    if connection.vendor == "sqlite":  # whose columns have no range
        return
    assert column()[str(first.pk)] == 2**31 - 2
    assert contents(VideoRank) == column()
    assert "refuses the change 5" in caplog.text


@pytest.mark.skipif(connection.vendor != "postgresql", reason="has no constraints that wait for the commit")
def test_what_a_deferred_constraint_refuses_is_given_up_alone(
    videos: list[Video], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = videos
    table = connection.ops.quote_name(Video._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT one UNIQUE (views) DEFERRABLE INITIALLY DEFERRED")
    try:
        VideoRank.scores.increment({first: 1, second: 10})
        flush(INDEX)
        drain(INDEX)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT one")
    assert column() == {str(first.pk): 11, str(second.pk): 20, str(third.pk): 30} == contents(VideoRank)
    assert "refuses the change 10" in caplog.text


def test_a_member_takes_its_change_along(videos: list[Video]) -> None:
    """Deleted, nothing is left; outside of the queryset, the column has it."""
    first, second, third = videos
    VideoRank.scores.increment({first: 5, second: 5, third: 5})
    first.delete()
    Video.objects.filter(pk=second.pk).update(is_public=False)
    Video.objects.filter(pk=third.pk).update(views=None)
    sync(INDEX)
    assert column() == {str(second.pk): 25, str(third.pk): None}
    assert contents(VideoRank) == {}
    Video.objects.filter(pk=second.pk).update(is_public=True)
    sync(INDEX)
    assert contents(VideoRank) == {str(second.pk): 25}
    VideoRank.scores.increment(second, 5)
    Video.objects.filter(pk=second.pk)._raw_delete("default")
    flush(INDEX)  # of no row
    sync(INDEX)
    assert (contents(VideoRank), pending()) == ({}, {})


def test_another_rule_begins_when_nothing_is_pending(declare: Declare) -> None:
    """A release declares another ``write_behind`` while changes of the one before are pending."""
    old = declare(Video, "-views", write_behind="increment")
    new = type("Released", (RankIndex,), {"model": Video, "order": ("-views",), "write_behind": "best"})
    new.name = old.name
    video = Video.objects.create(views=10)
    sync(old)
    old.scores.increment(video, 5)
    with pytest.raises(NotBuilt):
        new.scores.submit(video, 100)
    rebuild(new.instance())
    with pytest.raises(IndexUnavailable, match="the former write_behind"):
        new.scores.submit(video, 100)
    rows = list(read(new.instance(), [video.pk], store := PendingStore.of(new.instance())))
    epoch = begin_write(store)
    push(new.instance(), [video.pk])
    # What is pending by another rule is left to its flush, which marks the member.
    assert contents(old) == {str(video.pk): 10}
    assert flush(new.instance()) == 1
    assert column(old) == {str(video.pk): 15}
    assert new.scores.submit(video, 100) == 100
    with pytest.raises(NotBuilt):
        old.scores.increment(video)
    assert apply_changes(store, epoch, rows) is None  # nothing tells by now what they lack
    sync(new)
    assert column(old) == {str(video.pk): 100} == contents(old)


def test_a_save_flushes_what_is_due(videos: list[Video], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_done", Recent())
    VideoRank.scores.increment(videos[0], 5)
    videos[1].save()
    assert column()[str(videos[0].pk)] == 15
    VideoRank.scores.increment(videos[0], 5)
    videos[1].save()
    assert pending() == {str(videos[0].pk): 5}


# Verification


def test_verify_knows_what_is_pending(
    videos: list[Video], interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, is_locked = WriteBehind.work, True

    def look(extension: WriteBehind, index: RankIndex, **how: Any) -> int:
        """Flush nothing before the look at what seems wrong."""
        return work(extension, index, **how) if how["skip_locked"] and not is_locked else 0

    monkeypatch.setattr(WriteBehind, "work", look)
    first, second, third = videos
    VideoRank.scores.increment({first: 5, second: 5})
    interrupted(flush_module, "_carry")
    VideoRank.scores.increment({second: 1, third: 1})
    with monkeypatch.context() as patch:  # as if the rows were locked
        patch.setattr(verification, "_PAUSE", 0)
        report = verify(INDEX)
    assert (report.drift, report.unsettled) == (0, 3)
    is_locked = False
    report = verify(INDEX)
    assert (report.drift, report.unsettled, pending()) == (0, 0, {})
    VideoRank.scores.increment(second)
    interrupted(PendingStore, "settle_flush")
    assert verify(INDEX).drift == 0
    drain(INDEX)
    STORE.client.zincrby(STORE.live.root, 1, str(first.pk))
    STORE.client.zincrby(STORE.live.root, -1, str(second.pk))
    report = verify(INDEX, repair=True)
    assert (report.different.count, report.repaired) == (2, 2)
    assert contents(VideoRank) == {str(first.pk): 15, str(second.pk): 27, str(third.pk): 31}


def test_gauges_tell_what_is_pending(videos: list[Video]) -> None:
    assert (read_gauges(INDEX).pending, read_gauges(INDEX).lag) == (0, 0)
    VideoRank.scores.increment({videos[0]: 5, videos[1]: 5})
    gauges = read_gauges(INDEX)
    assert gauges.pending == 2
    assert gauges.lag > 0
    flush(INDEX)
    assert (read_gauges(INDEX).pending, read_gauges(INDEX).lag) == (0, 0)


@pytest.mark.part("sql")
def test_the_fallback_says_that_it_lacks_what_is_pending(
    videos: list[Video], settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ZRANK = {"UNHEALTHY": "database"}
    monkeypatch.setattr("django_zrank.sql._logged", Recent())
    VideoRank.scores.increment(videos[0], 5)
    STORE.client.delete(STORE.keys.meta)
    VideoRank.ranking._reader.trust.until = 0.0  # that of a test before
    assert VideoRank.ranking.score(videos[0]) == 10
    assert VideoRank.ranking.score(videos[1]) == 20
    assert caplog.text.count("answers by SQL don't include the changes that are pending in Redis") == 1


# Servers that lost something


def restore(client: Redis, dump: dict[bytes, Any]) -> None:
    client.flushdb()
    for key, value in dump.items():
        client.restore(key, 0, value)


def dump(client: Redis) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.keys("zrank:*")}  # type: ignore[union-attr]


def restart(client: Redis) -> None:
    """Let the server look like another process of the same data."""
    client.hset(STORE.keys.meta, "server", "old/history")
    Build.objects.filter(index=INDEX.name).update(server="old/history")


@pytest.mark.parametrize("when", ["nothing taken", "in flight", "settled"])
def test_a_server_that_comes_back_older_does_not_count_again(
    videos: list[Video], zrank: Redis, interrupted: Callable[..., None], when: str
) -> None:
    rebuild(INDEX)  # by an owner of its own
    first, second, third = videos
    VideoRank.scores.increment({first: 5, second: 5})
    if when == "in flight":
        interrupted(flush_module, "_carry")
    elif when == "settled":
        flush(INDEX)
    VideoRank.scores.increment({first: 1})
    image = dump(zrank)
    VideoRank.scores.increment({first: 1, third: 1})
    sync(INDEX)
    assert column() == contents(VideoRank)
    before = column()
    VideoRank.scores.increment({third: 50})  # lost
    restore(zrank, image)
    restart(zrank)
    sync(INDEX)
    assert column() == before == contents(VideoRank)
    assert pending() == {}


def test_a_server_that_lost_all_counts_nothing_again(videos: list[Video], zrank: Redis) -> None:
    rebuild(INDEX)
    VideoRank.scores.increment(videos[0], 5)
    sync(INDEX)
    zrank.flushdb()
    sync(INDEX)
    assert contents(VideoRank) == column()
    VideoRank.scores.increment(videos[0], 5)
    sync(INDEX)
    assert column()[str(videos[0].pk)] == 20


@pytest.mark.parametrize("purged", [False, True])
def test_a_flush_whose_batch_is_purged_is_not_counted_again_by_the_server_that_took_it(
    videos: list[Video], zrank: Redis, interrupted: Callable[..., None], purged: bool
) -> None:
    rebuild(INDEX)
    first, second, _ = videos
    VideoRank.scores.increment(first, 5)
    interrupted(PendingStore, "settle_flush")  # committed
    image = dump(zrank)
    restart(zrank)
    sync(INDEX)  # another server
    VideoRank.scores.increment(second)
    sync(INDEX)
    if purged:
        batch = Batch.objects.filter(flush__isnull=False).earliest("term", "version")
        Build.objects.update(purged_term=batch.term, purged=batch.version)
        batch.delete()
    restore(zrank, image)
    restart(zrank)
    sync(INDEX)
    assert (column()[str(first.pk)], column()[str(second.pk)]) == (15, 21)
    assert contents(VideoRank) == column()


def test_a_flush_that_was_killed_before_its_commit_is_written_after_a_restart(
    videos: list[Video], interrupted: Callable[..., None]
) -> None:
    VideoRank.scores.increment(videos[0], 5)
    interrupted(flush_module, "_carry")
    restart(STORE.client)
    sync(INDEX)
    assert column()[str(videos[0].pk)] == 15
    assert contents(VideoRank) == column()


def test_a_flush_that_was_killed_before_its_commit_is_written_though_batches_of_drains_are_purged(
    videos: list[Video], interrupted: Callable[..., None]
) -> None:
    """They are of the same term, and newer."""
    first, second, _ = videos
    rebuild(INDEX)
    VideoRank.scores.increment(first, 5)
    interrupted(flush_module, "_carry")
    Video.objects.filter(pk=second.pk).update(views=50)
    drain(INDEX)
    forget_batches(INDEX, -60)
    row = Build.objects.get(index=INDEX.name)
    assert (row.purged_term, row.purged) > (row.term, int(STORE.read_meta("took")[0]))
    restart(STORE.client)
    sync(INDEX)
    assert (column()[str(first.pk)], column()[str(second.pk)]) == (15, 50)
    assert contents(VideoRank) == column()


def test_a_flush_that_was_killed_before_its_commit_is_written_by_the_server_that_comes_back(
    videos: list[Video], zrank: Redis, interrupted: Callable[..., None]
) -> None:
    """Another one, which knew nothing of the change, has flushed as many in between."""
    rebuild(INDEX)
    first, second, _ = videos
    before = dump(zrank)
    VideoRank.scores.increment(first, 5)
    interrupted(flush_module, "_carry")
    image = dump(zrank)
    restore(zrank, before)
    restart(zrank)
    sync(INDEX)
    VideoRank.scores.increment(second)
    sync(INDEX)
    assert (column()[str(first.pk)], column()[str(second.pk)]) == (10, 21)
    restore(zrank, image)
    restart(zrank)
    sync(INDEX)
    assert (column()[str(first.pk)], column()[str(second.pk)]) == (15, 21)
    assert contents(VideoRank) == column()


def test_what_a_flush_left_is_written_by_a_server_that_comes_back_without_knowing(
    videos: list[Video], zrank: Redis, interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row was locked, so its change was put back, and the flush was committed without it."""
    rebuild(INDEX)
    first, second, _ = videos
    VideoRank.scores.increment({first: 5, second: 5})
    interrupted(flush_module, "_carry")
    image = dump(zrank)
    merge = flush_module.merge_changes

    def merge_unless_locked(index: Any, column: Any, changes: Any) -> Any:
        if str(first.pk) in changes:
            raise OperationalError(1205, "locked")
        return merge(index, column, changes)

    with monkeypatch.context() as patch:
        patch.setattr(flush_module, "merge_changes", merge_unless_locked)
        assert flush(INDEX, patience=0.0, skip_locked=True) == 1
    restore(zrank, image)
    restart(zrank)
    sync(INDEX)
    assert (column()[str(first.pk)], column()[str(second.pk)]) == (15, 25)
    assert contents(VideoRank) == column()


def test_a_server_that_lacks_purged_flushes_counts_nothing_again(videos: list[Video], zrank: Redis) -> None:
    """Nothing tells which of its pending changes the column has."""
    rebuild(INDEX)
    VideoRank.scores.increment(videos[0], 5)
    image = dump(zrank)
    flush(INDEX)
    forget_batches(INDEX, -60)
    restore(zrank, image)
    restart(zrank)
    sync(INDEX)
    assert column()[str(videos[0].pk)] == 15
    assert (contents(VideoRank), pending()) == (column(), {})


@pytest.mark.part("combined", "groups")
def test_what_is_made_of_filters_sees_changes_that_began_in_redis(videos: list[Video]) -> None:
    group = VideoRank.group("watched")
    group.add(*videos)
    ranking = VideoRank.ranking.filter(group="watched")

    def scores() -> list[int]:
        for key in STORE.client.scan_iter("*:combined_filter:*:stamp"):
            STORE.client.unlink(key)  # it may not be any older
        return [entry.score for entry in ranking.top()]

    assert scores() == [30, 20, 10]
    VideoRank.scores.increment(videos[0], 5)
    assert scores() == [30, 20, 15]
    VideoRank.scores.increment({videos[0]: 100, videos[1]: 2})
    assert scores() == [115, 30, 22]
