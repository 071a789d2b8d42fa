"""Each step of a flush: what is read, written, noted and put back, whoever comes between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from django.core.exceptions import FieldError
from django.db import DatabaseError, DataError, OperationalError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.codec.layout import PLAIN
from django_zrank.exceptions import Busy, IndexUnhealthy
from django_zrank.models import Batch, Build, Mark
from django_zrank.recent import Recent
from django_zrank.sync import upkeep
from django_zrank.sync.push import push
from django_zrank.testing import disable_sync
from django_zrank.write_behind import flush as module
from django_zrank.write_behind.changes import ChangeScores
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.store import PendingStore
from tests.sync.conftest import Clock
from tests.sync.interruptions import just_after, just_before
from tests.sync.mirror import contents
from tests.testapp.models import Video
from tests.testapp.zrank import PlayerAscending, VideoRank

from .scripted import ruled

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank", "undrained")]

INDEX = VideoRank.instance()
STORE = PendingStore.of(INDEX)
MARKS = connection.ops.quote_name(Mark._meta.db_table)


@pytest.fixture
def videos(zrank: Redis) -> list[Video]:
    """Eight videos of 10 views. One more was counted of each."""
    videos = [Video.objects.create(views=10) for _ in range(8)]
    increment(*videos)
    return videos


def count_more() -> None:
    """The same of 32 more: Valkey may return all of few by one HSCAN."""
    with disable_sync():  # a save may flush what is pending
        videos = [Video.objects.create(views=10) for _ in range(32)]
    push(INDEX, [video.pk for video in videos])
    increment(*videos)


def increment(*videos: Video) -> None:
    VideoRank.scores.increment(dict.fromkeys(videos, 1))


def column() -> list[int | None]:
    return list(Video.objects.order_by("pk").values_list("views", flat=True))


def written() -> int:
    """How many have got their change."""
    return sum(views == 11 for views in column())


def waits() -> int:
    return STORE.waiting()[0]


@pytest.fixture
def in_pieces(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A flush takes about two members."""
    monkeypatch.setattr(module, "BATCH_SIZE", 2)
    ((_, before),) = zrank.config_get("hash-max-listpack-entries").items()  # type: ignore[union-attr]
    zrank.config_set("hash-max-listpack-entries", 1)  # smaller hashes are returned by one HSCAN
    yield
    zrank.config_set("hash-max-listpack-entries", before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of flushes."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


Merge = Callable[..., Any]


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[int]], object]], None]:
    """Calls a function before each statement, with the keys of its members."""

    def install(act: Callable[[list[int]], object]) -> None:
        merge = module.merge_changes

        def merge_after(index: Any, column: Any, changes: Any) -> Any:
            act(list(map(int, changes)))
            return merge(index, column, changes)

        monkeypatch.setattr(module, "merge_changes", merge_after)

    return install


def test_a_flush_is_refused_inside_a_transaction(videos: list[Video]) -> None:
    """Before anything is taken."""
    with pytest.raises(transaction.TransactionManagementError, match="A flush"), transaction.atomic():
        flush(INDEX)
    assert (written(), waits()) == (0, 8)
    assert STORE.read_meta("taken") == [""]


def test_a_flush_of_a_server_that_is_not_accepted_fails(videos: list[Video]) -> None:
    STORE.client.hset(STORE.keys.meta, "server", "another")
    with pytest.raises(IndexUnhealthy):
        flush(INDEX)
    assert written() == 0


def test_a_flush_of_a_server_that_lacks_one_fails(videos: list[Video]) -> None:
    """It went back to a dump, with its memory."""
    row = Build.objects.filter(pk=INDEX.name)
    row.update(flushed=5, flushed_term=row.get().term)
    STORE.client.hset(STORE.keys.meta, "taken", 4)
    with pytest.raises(IndexUnhealthy):
        flush(INDEX)
    assert (written(), waits()) == (0, 8)


def test_where_nothing_is_pending_it_has_no_age() -> None:
    """The hash with the changes was evicted, say, and the time is left."""
    STORE.client.hset(STORE.keys.meta, "waiting", 1)
    assert STORE.waiting() == (0, 0.0)


def test_an_index_whose_scores_begin_in_the_database_has_nothing_to_flush() -> None:
    assert flush(PlayerAscending.instance()) == 0


@pytest.mark.usefixtures("in_pieces")
def test_a_flush_takes_all_that_is_pending_in_pieces(videos: list[Video]) -> None:
    count_more()
    assert flush(INDEX) == 40
    assert (written(), waits()) == (40, 0)
    number = Build.objects.get(pk=INDEX.name).flushed
    assert number >= 2
    assert STORE.read_meta("taken", "settled") == [str(number)] * 2
    assert Batch.objects.filter(index=INDEX.name, flush__isnull=False).count() == number


@pytest.mark.usefixtures("in_pieces")
def test_a_flush_takes_about_as_many_as_it_is_told(videos: list[Video]) -> None:
    count_more()
    done = flush(INDEX, limit=2)
    assert 0 < done == written() < 40
    assert waits() == 40 - done


def test_a_flush_of_the_declared_rule_warns_of_no_other_release(
    videos: list[Video], caplog: pytest.LogCaptureFixture
) -> None:
    assert flush(INDEX) == 8
    assert not caplog.records


def test_a_flush_notes_what_it_has_written(videos: list[Video]) -> None:
    """In marks, although its own change leaves some, too; and in a batch, as drains do."""
    Mark.objects.all().delete()
    assert flush(INDEX) == 8
    members = sorted(str(video.pk) for video in videos)
    marks = Mark.objects.filter(index=INDEX.name, via=None).values_list("member", flat=True)
    assert set(members) <= set(marks)
    batch = Batch.objects.get(index=INDEX.name, flush__isnull=False)
    assert sorted(batch.marks) == [[None, member] for member in members]
    assert (batch.flush, batch.term) == (1, Build.objects.get(pk=INDEX.name).term)
    assert str(batch.version) == STORE.read_meta("took")[0]


def test_a_flush_that_changes_no_row_leaves_marks(videos: list[Video]) -> None:
    flush(INDEX)
    Mark.objects.all().delete()
    VideoRank.scores.increment(videos[0], 1)
    VideoRank.scores.increment(videos[0], -1)
    assert flush(INDEX) == 1
    assert set(Mark.objects.values_list("member", flat=True)) == {str(videos[0].pk)}


# Other processes


@pytest.mark.parametrize("is_settled", [True, False], ids=["settled", "killed before that"])
def test_a_flush_that_another_process_completes_is_written_once(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch, is_settled: bool
) -> None:
    settle = PendingStore.settle_flush

    def complete() -> None:
        if not is_settled:
            monkeypatch.setattr(PendingStore, "settle_flush", lambda store, *given: True)
        flush(INDEX, limit=8)
        monkeypatch.setattr(PendingStore, "settle_flush", settle)

    just_after(monkeypatch, PendingStore, "take_pending", complete)
    flush(INDEX)
    assert (written(), waits()) == (8, 0)


def test_a_flush_of_which_another_process_puts_some_back_is_written_once(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one has found them locked."""
    confirm = PendingStore.confirm_flush

    def put_back(store: PendingStore, term: int, flight: Any, left: Any) -> bool:
        monkeypatch.setattr(PendingStore, "confirm_flush", confirm)
        assert store.confirm_flush(term, flight, [str(videos[0].pk)])
        return store.confirm_flush(term, flight, left)

    monkeypatch.setattr(PendingStore, "confirm_flush", put_back)
    assert flush(INDEX) == 8
    assert (written(), waits()) == (8, 0)


@pytest.mark.parametrize(
    "note", [{"term": F("term") + 1}, {"term": F("term") + 1, "flushed": 9}, {"flushed": 0}], ids=str
)
def test_a_flush_that_the_database_knows_nothing_of_is_not_written(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch, note: dict[str, Any]
) -> None:
    """It has trusted another server, or was restored from a backup."""
    for _ in range(2):
        flush(INDEX)
        increment(*videos)
    before, rows = column(), Build.objects.filter(index=INDEX.name)
    just_after(monkeypatch, PendingStore, "take_pending", lambda: rows.update(**note))
    with pytest.raises(IndexUnhealthy):
        flush(INDEX)
    assert column() == before


def submit(value: int, rule: str, video: Video) -> None:
    """As another release does."""
    question = ChangeScores(PLAIN, rule, (0, 1000), [(str(video.pk), value)])
    assert ruled(INDEX.name, PLAIN, rule).run(question.steps).outcome == "done"


@pytest.mark.parametrize(("views", "left"), [(50, 0), (10, 1)], ids=["known", "unknown"])
def test_a_change_by_the_rule_of_another_release_that_comes_between(
    monkeypatch: pytest.MonkeyPatch, views: int, left: int
) -> None:
    """It is written by that rule; or left, if no column can take it."""
    video = Video.objects.create(views=10)
    STORE.client.hdel(STORE.keys.meta, "rule")
    just_before(monkeypatch, PendingStore, "take_pending", lambda: submit(50, "max:views:0", video))
    if left:
        monkeypatch.setattr(module.Column, "of_noted", mock.Mock(side_effect=FieldError("which?")))
    assert flush(INDEX) == 1 - left
    assert (column(), waits()) == ([views], left)


def test_a_flush_leaves_the_rule_of_the_release_whose_build_is_live() -> None:
    """It says how rows are merged. Nothing is pending by it."""
    STORE.client.hset(STORE.keys.meta, mapping={"rule": "max:views:0", "build": "ffffffff-another"})
    assert flush(INDEX) == 0
    assert STORE.read_meta("rule") == ["max:views:0"]


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_rule_of_another_release_that_no_column_can_take(
    waiting: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The index is ordered by something else now. An error is logged while changes are pending, and these are kept."""
    STORE.client.hset(STORE.keys.meta, "rule", "max:views:0")
    if waiting:
        submit(50, "max:views:0", Video.objects.create(views=10))
    monkeypatch.setattr(module.Column, "of_noted", mock.Mock(side_effect=FieldError("which?")))
    assert flush(INDEX) == 0
    assert (waits(), STORE.read_meta("rule")) == (waiting, ["max:views:0"])
    assert ["no column can take them: which?" in one.message for one in caplog.records] == [True] * waiting


# Rows that are locked, slow or refused


def locking(*videos: Video, code: Any = 1205) -> Callable[[list[int]], None]:
    locked = {video.pk for video in videos}

    def refuse(pks: list[int]) -> None:
        if locked.intersection(pks):
            raise OperationalError(code, "locked")

    return refuse


def test_a_locked_row_stays_pending_and_is_named(videos: list[Video], merging: Merge) -> None:
    merging(locking(videos[3]))
    with pytest.raises(Busy, match=rf"1 row is locked, such as that of {videos[3].pk}:"):
        flush(INDEX, patience=0.0)
    assert (written(), waits()) == (7, 1)
    assert [len(batch.marks) for batch in Batch.objects.filter(flush__isnull=False)] == [7, 0]


def test_locked_rows_are_skipped(videos: list[Video], merging: Merge) -> None:
    merging(locking(videos[3], videos[4]))
    assert flush(INDEX, patience=0.0, skip_locked=True) == 6
    assert (written(), waits()) == (6, 2)


def test_a_flush_waits_for_locked_rows(
    videos: list[Video], merging: Merge, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = {videos[3].pk}

    def refuse(pks: list[int]) -> None:
        if locked.intersection(pks):
            raise OperationalError(1205, "locked")

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        locked.clear()

    merging(refuse)
    monkeypatch.setattr(module, "sleep", sleep)
    assert flush(INDEX, patience=5.0) == 8
    assert (written(), waits()) == (8, 0)


def test_a_flush_waits_no_longer_than_it_is_told(
    videos: list[Video], merging: Merge, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging(locking(videos[3]))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        clock.advance(1.0)
        slept.append(seconds)

    monkeypatch.setattr(module, "sleep", sleep)
    with pytest.raises(Busy):
        flush(INDEX, patience=3.0)
    assert len(slept) == 3


def test_a_flush_of_which_all_rows_are_locked_is_taken_once(
    videos: list[Video], merging: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging(locking(*videos))
    take, taken = PendingStore.take_pending, []

    def note(store: PendingStore, *given: Any, **how: Any) -> Any:
        taken.append(given)
        return take(store, *given, **how)

    monkeypatch.setattr(PendingStore, "take_pending", note)
    assert flush(INDEX, patience=0.0, skip_locked=True) == 0
    assert (len(taken), written(), waits()) == (1, 0, 8)


def test_a_flush_of_which_all_rows_are_locked_leaves_no_marks(videos: list[Video], merging: Merge) -> None:
    """Nor a statement that would: MariaDB's has at least one row."""
    merging(locking(*videos))
    with CaptureQueriesContext(connection) as queries:
        assert flush(INDEX, patience=0.0, skip_locked=True) == 0
    assert not [query for query in queries if f"INTO {MARKS}" in query["sql"]]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="locks rows itself")
def test_a_row_that_a_statement_skips_stays_pending(
    videos: list[Video], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition in place of SKIP LOCKED, which SQLite doesn't have. A row that is gone isn't locked."""
    locked, gone = videos[3], videos[5]
    Video.objects.filter(pk=gone.pk)._raw_delete("default")
    with monkeypatch.context() as patch:
        patch.setattr(module._SQLite, "lock", f"AND t.id <> {locked.pk}")
        with pytest.raises(Busy, match=rf"1 row is locked, such as that of {locked.pk}:"):
            flush(INDEX, patience=0.0)
    assert (written(), waits()) == (6, 1)
    assert flush(INDEX) == 1
    assert (written(), waits()) == (7, 0)


def test_slow_rows_are_written_some_at_a_time_and_the_others_put_back(
    videos: list[Video], merging: Merge, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another order each time, or the slow ones would keep the same others waiting."""
    statements: list[list[int]] = []

    def note(pks: list[int]) -> None:
        statements.append(pks)
        clock.advance(1.5)

    monkeypatch.setattr(module, "_FIRST", 3)
    monkeypatch.setattr(module, "shuffle", list.reverse)
    merging(note)
    assert flush(INDEX) == 8
    assert (written(), waits()) == (8, 0)
    last = [video.pk for video in videos][-3:]
    assert statements[0] == last[::-1]
    assert max(map(len, statements)) == 3
    first = Batch.objects.filter(flush__isnull=False).earliest("flush")
    assert sorted(first.marks) == sorted([None, str(pk)] for pk in last)


@pytest.mark.parametrize(("seconds", "sizes"), [(0.01, [1, 4, 3]), (0.2, [1, 1, 1, 1, 1, 1, 1, 1])])
def test_statements_become_larger_as_long_as_they_are_quick(
    videos: list[Video],
    merging: Merge,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    sizes: list[int],
) -> None:
    found: list[int] = []

    def note(pks: list[int]) -> None:
        found.append(len(pks))
        clock.advance(seconds)

    monkeypatch.setattr(module, "_FIRST", 1)
    merging(note)
    flush(INDEX)
    assert found == sizes


@pytest.mark.parametrize(
    "error", [DataError("a value"), DatabaseError("a policy"), OperationalError(1644, "a trigger")], ids=repr
)
def test_a_row_that_is_refused_is_given_up_alone(
    videos: list[Video], merging: Merge, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(pks: list[int]) -> None:
        if videos[3].pk in pks:
            raise error

    merging(refuse)
    with caplog.at_level(logging.ERROR, "django_zrank.sync"):
        flush(INDEX)
    assert (written(), waits()) == (7, 0)
    assert f"the database refuses the change 1 of {videos[3].pk}" in caplog.text


@pytest.mark.parametrize("error", [DatabaseError("read-only"), OperationalError("disk I/O error")], ids=repr)
def test_what_is_refused_whatever_is_written_is_given_up_for_no_row(
    videos: list[Video], merging: Merge, error: Exception
) -> None:
    def refuse(pks: list[int]) -> None:
        raise error

    merging(refuse)
    with pytest.raises(type(error)):
        flush(INDEX)
    assert (written(), waits()) == (0, 8)


def test_an_error_of_one_statement_that_is_of_no_row_gives_up_none(
    videos: list[Video], merging: Merge
) -> None:
    """As of a connection that broke: the next statement succeeds."""

    def refuse(pks: list[int]) -> None:
        if pks:
            raise OperationalError("server closed the connection")

    merging(refuse)
    with pytest.raises(OperationalError):
        flush(INDEX)
    assert (written(), waits()) == (0, 8)


# After a push


@pytest.fixture
def due(videos: list[Video], monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush was made lately: that after the videos were saved doesn't count."""
    monkeypatch.setattr(upkeep, "_done", Recent())


@pytest.mark.usefixtures("due")
def test_whoever_pushes_flushes_once_in_a_while(videos: list[Video]) -> None:
    upkeep.work_soon(INDEX)
    assert (written(), waits()) == (8, 0)
    increment(*videos)
    upkeep.work_soon(INDEX)
    assert waits() == 8
    upkeep.work_again(INDEX, "write_behind")
    upkeep.work_soon(INDEX)
    assert waits() == 0


@pytest.mark.usefixtures("due")
def test_whoever_pushes_inside_a_transaction_flushes_nothing(videos: list[Video]) -> None:
    with transaction.atomic():
        upkeep.work_soon(INDEX)
    assert waits() == 8
    upkeep.work_soon(INDEX)
    assert waits() == 0


@pytest.mark.usefixtures("due")
def test_whoever_pushes_waits_for_no_locked_row(videos: list[Video], merging: Merge) -> None:
    merging(locking(videos[3]))
    upkeep.work_soon(INDEX)
    assert (written(), waits()) == (7, 1)


@pytest.mark.usefixtures("due")
def test_no_flush_is_due_where_no_score_begins_in_redis() -> None:
    assert not upkeep.is_due(PlayerAscending.instance(), "write_behind")
    assert upkeep.is_due(INDEX, "write_behind")


@pytest.mark.usefixtures("due")
def test_whoever_pushes_does_not_fail_by_a_flush(videos: list[Video]) -> None:
    STORE.client.hset(STORE.keys.meta, "server", "another")
    with pytest.raises(IndexUnavailable):
        flush(INDEX)
    upkeep.work_soon(INDEX)
    assert contents(VideoRank) == {str(video.pk): 11 for video in videos}
