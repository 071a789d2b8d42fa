"""Write-behind scores, where two of a kind are at work, or a call is sent again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from django.db import transaction

from django_zrank import IndexUnavailable, NotRanked, RankIndex
from django_zrank.builds import recorded
from django_zrank.exceptions import Busy
from django_zrank.models import Batch, Build
from django_zrank.recent import Recent
from django_zrank.sync import upkeep
from django_zrank.sync.health import examine, repair
from django_zrank.sync.marks import replay
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.upkeep import is_due
from django_zrank.sync.watch import sync
from django_zrank.write_behind import flush as flush_module
from django_zrank.write_behind import store as store_module
from django_zrank.write_behind.flush import flush, reconcile
from django_zrank.write_behind.store import PendingStore
from tests.dumps import dump, restore
from tests.sync.interruptions import count_steps, interrupted
from tests.sync.mirror import contents
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

from .test_scores import INDEX, STORE, column, pending, restart

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]


@pytest.fixture
def video() -> Video:
    return Video.objects.create(views=10)


def test_a_repair_that_was_held_up_counts_nothing_again(video: Video) -> None:
    VideoRank.scores.increment(video, 5)
    restart(STORE.client)
    # One process raises the term, and is held up. Another one repairs the index, and begins a flush.
    health = STORE.check_health()
    assert replay(INDEX, health, noted=recorded(INDEX)) is not None
    repair(INDEX)
    row = recorded(INDEX)
    flight = STORE.take_pending(row.term, row.flushed, 100)
    assert flight is not None
    reconcile(INDEX, STORE, health)  # the first one goes on
    assert flush_module._carry(INDEX, INDEX.column, STORE, flight, row.term, 1.0)
    STORE.settle_flush(row.term, flight.number)
    flush(INDEX)
    assert column() == {str(video.pk): 15} == contents(VideoRank)


@pytest.mark.parametrize("mend", [rebuild, repair, sync])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "restarted"])
def test_a_flush_comes_between_two_steps(mend: Callable[[Any], object], is_restarted: bool) -> None:
    """And a change after it, of the same member. What was looked at before is compared with what is noted after."""
    video, counted = Video.objects.create(views=0), 0

    def change(by: int) -> int:
        with suppress(IndexUnavailable):  # its server isn't trusted yet
            VideoRank.scores.increment(video, by)
            return by
        return 0

    def come_between(step: int) -> None:
        nonlocal counted
        if step == at:
            with suppress(IndexUnavailable, Busy):
                flush(INDEX)
            counted += change(1000)

    steps = count_steps(lambda: mend(INDEX))
    for at in range(1, steps + 1):
        counted += change(1)
        if is_restarted:
            restart(STORE.client)
        with suppress(IndexUnavailable, Busy), interrupted(come_between):
            mend(INDEX)
        sync(INDEX)
        flush(INDEX)
        sync(INDEX)
        assert column() == {str(video.pk): counted} == contents(VideoRank), f"at step {at} of {steps}"


def test_a_repair_is_killed_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that lacks a flush, whose members are reconciled in several pieces."""

    class KilledError(Exception):
        pass

    def kill(step: int) -> None:
        if step == at:
            raise KilledError

    monkeypatch.setattr(store_module, "_RECONCILED", 1)
    videos, is_killed = [Video.objects.create(views=0) for _ in range(3)], True
    for at in count(1):
        VideoRank.scores.increment(dict.fromkeys(videos, 1))
        held = dump(STORE.client)
        flush(INDEX)
        restore(STORE.client, held)
        with interrupted(kill):
            try:
                repair(INDEX)
            except KilledError:
                is_killed = True
            else:
                is_killed = False
        sync(INDEX)
        flush(INDEX)
        sync(INDEX)
        assert column() == {str(video.pk): at for video in videos} == contents(VideoRank), f"at step {at}"
        if not is_killed:
            break
    assert at > 5


def test_a_row_that_may_yet_be_rolled_back_is_not_ranked() -> None:
    with pytest.raises(NotRanked), transaction.atomic():
        VideoRank.scores.increment(Video.objects.create(views=10))
    assert contents(VideoRank) == {}


def test_a_call_that_was_made_is_not_judged_again(video: Video) -> None:
    _, highest = INDEX.column.limits("default")  # type: ignore[union-attr]
    for _ in range(2):
        assert VideoRank.scores.increment(video, highest - 10, key="a") == highest


def test_a_key_names_one_change(video: Video) -> None:
    other = Video.objects.create(views=20)
    for changes in ({video: 1, other: 2}, {other: 2, video: 1}):
        assert VideoRank.scores.increment(changes, key="a") == {video: 11, other: 22}
    with pytest.raises(ValueError, match="key: 'a' was the key of another change"):
        VideoRank.scores.increment(video, 1, key="a")
    assert pending() == {str(video.pk): 1, str(other.pk): 2}


@pytest.mark.parametrize("key", ["", "a"])
@pytest.mark.parametrize(("views", "by"), [(5, 2**53), (2**31 - 1, 2**53 - 1), (-6, -(2**53))])
def test_a_refused_increment_leaves_the_score_as_it_was(views: int, by: int, key: str) -> None:
    video = Video.objects.create(views=views)
    with pytest.raises(ValueError, match="would leave the column's range"):
        VideoRank.scores.increment(video, by, key=key)
    assert (pending(), contents(VideoRank)) == ({}, {str(video.pk): views})


def test_a_watcher_flushes_on_while_more_is_pending(video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_done", Recent())
    for _ in range(3):
        VideoRank.scores.increment(video)
        assert sync(INDEX, limit=1, due=is_due).worked["write_behind"] == 1
    VideoRank.scores.increment(video)
    assert sync(INDEX, limit=2, due=is_due).worked["write_behind"] == 1
    VideoRank.scores.increment(video)
    assert sync(INDEX, limit=2, due=is_due).worked["write_behind"] == 0


def test_an_evicted_ranking_is_noticed_by_a_change(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Video, "-views", write_behind="increment", facets=("region",))
    first, _ = (Video.objects.create(views=views, region="a") for views in (10, 20))
    rebuild(index.instance())
    store = PendingStore(index.instance().name)
    store.client.delete(store.live.ranking("region:a"))
    index.scores.increment(first)
    assert examine(index.instance()).wants_rebuild


@pytest.mark.parametrize("mend", [sync, rebuild])
def test_a_database_that_lost_its_newest_flushes_is_flushed_to_again(video: Video, mend: Any) -> None:
    for _ in range(10):
        VideoRank.scores.increment(video)
        flush(INDEX)
    Build.objects.filter(index=INDEX.name).update(flushed=1)
    Batch.objects.filter(flush__gt=1).delete()
    Video.objects.update(views=11)
    VideoRank.scores.increment(video, 5)
    mend(INDEX)
    assert contents(VideoRank) == {str(video.pk): 16}
    sync(INDEX)
    assert column() == {str(video.pk): 16} == contents(VideoRank)
