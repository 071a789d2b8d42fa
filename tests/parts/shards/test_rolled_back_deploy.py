"""A release with another number of shards is rolled back while its worker removes the former shards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from itertools import chain, count
from typing import Any

import pytest
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.builds import recorded
from django_zrank.models import Build
from django_zrank.shards import former
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from django_zrank.write_behind import flush
from tests.sync.interruptions import interrupted, just_before
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.part("write_behind")]

FORMER = VideoRank.instance()


@pytest.fixture
def later() -> Any:
    """The release with two shards."""
    return type("Later", (VideoRank,), {"name": FORMER.name, "shards": 2}).instance()


def removing(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call ``act`` before each step of the removal of the former release's shard."""
    unlink = former._unlink

    def interrupted_unlink(shard: Any, retired: Build, **how: Any) -> None:
        with interrupted(act) if shard.name == FORMER.name else nullcontext():
            unlink(shard, retired, **how)

    monkeypatch.setattr(former, "_unlink", interrupted_unlink)


def take_over_again() -> None:
    """Let the former release take over, with all that is pending."""
    rebuild(FORMER)
    for _ in range(3):
        sync(FORMER)


@pytest.mark.parametrize("rolls_back", [True, False])
def test_no_score_is_lost_that_is_taken_meanwhile(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch, later: Any, rolls_back: bool
) -> None:
    """The former release takes over again between any two steps of the removal, and takes a change; or a process of it
    is left, and takes one."""
    taken = steps = at = 0

    def go_on(step: int) -> None:
        nonlocal taken, steps
        steps = step
        if step == at:
            with suppress(IndexUnavailable):
                if rolls_back:
                    rebuild(FORMER)
                VideoRank.scores.increment(video, 7)
                taken += 1  # acknowledged

    removing(monkeypatch, go_on)
    for at in count(1):
        video = Video.objects.create(views=1)
        taken = steps = 0
        take_over_again()
        VideoRank.scores.increment(video, 5)
        rebuild(later)
        if rolls_back and at <= steps:
            assert (taken, Store.of(FORMER).read_meta("build")) == (1, [recorded(FORMER).build]), (
                f"at step {at}"
            )
        take_over_again()
        assert VideoRank.ranking.score(video) == 6 + 7 * taken, f"at step {at}"
        if steps < at:
            break
    assert at > 10


def test_a_score_that_cant_be_written_keeps_the_shard(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    """As while its row is locked. The next look writes it, and removes the shard."""
    video, store = Video.objects.create(views=1), Store.of(FORMER)
    rebuild(FORMER)
    with monkeypatch.context() as patched:

        def change() -> None:
            VideoRank.scores.increment(video, 5)
            patched.setattr(
                flush, "merge_changes", lambda index, column, changes: flush.Merged([*changes], [])
            )

        just_before(patched, former, "_close", change)
        rebuild(later)
    assert later.ranking.score(video) == 1
    former.unlink_former(later)
    sync(later)
    assert later.ranking.score(video) == 6
    assert not Build.objects.filter(index=FORMER.name).exists()
    assert not [*chain.from_iterable(store.scan_keys(f"{store.keys.tag}:"))]
