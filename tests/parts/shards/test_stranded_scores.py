"""Scores that no column can take, because it was dropped while they were pending. An operator gives them up."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from django_zrank import RankIndex
from django_zrank.models import Build
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync.leftovers import find_leftovers
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Video

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.part("write_behind"),
]


def run(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


@pytest.fixture
def release(declare: Callable[..., type[RankIndex]]) -> Callable[[int, int], RankIndex]:
    """Returns the index of a release that ranks videos by another column, after one whose column is gone."""

    def deploy(before: int, after: int) -> RankIndex:
        former = declare(Video, "-views", name="videos", shards=before, write_behind="increment")
        videos = [Video.objects.create(seen="2020-01-01T00:00:00Z") for _ in range(8)]
        rebuild(former.instance())
        for video in videos:
            former.scores.increment(video, 5)
        for holder in former.instance().holders:
            store = Store.of(holder)
            store.client.hset(store.keys.meta, "rule", "sum:dropped:0")
        registry.unregister(former)
        later = declare(Video, "seen", name="videos", shards=after)
        rebuild(later.instance())
        return later.instance()

    return deploy


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (4, 2), (4, 1)])
def test_a_rebuild_gives_them_up(
    release: Callable[[int, int], RankIndex],
    zrank: Redis,
    caplog: pytest.LogCaptureFixture,
    before: int,
    after: int,
) -> None:
    index = release(before, after)
    sync(index)
    assert "no column can take them" in caplog.text
    assert "rebuild_zrank videos --discard-pending" in caplog.text
    run("rebuild_zrank", "videos")
    assert zrank.keys("*{videos*}:pending")
    run("rebuild_zrank", "videos", "--discard-pending")
    caplog.clear()
    sync(index)
    assert not caplog.records
    assert not zrank.keys("*{videos*}:pending")
    assert {row.index for row in Build.objects.filter(index__startswith="videos")} == {
        one.name for one in index.holders
    }
    assert_mirrors(type(index))


def test_it_gives_up_no_others(declare: Callable[..., type[RankIndex]], zrank: Redis) -> None:
    index = declare(Video, "-views", name="videos", write_behind="increment")
    video = Video.objects.create(views=1)
    rebuild(index.instance())
    index.scores.increment(video, 5)
    run("rebuild_zrank", "videos", "--discard-pending")
    sync(index)
    assert Video.objects.get().views == 6


def test_prune_zrank_gives_up_those_of_a_former_shard(
    release: Callable[[int, int], RankIndex], zrank: Redis
) -> None:
    index = release(4, 2)
    names = [name for name in find_leftovers() if name.startswith("videos/4:")]
    assert names
    said = run("prune_zrank")
    assert f"to give them up, run prune_zrank {names[0]}" in said
    assert zrank.keys(f"*{{{names[0]}}}:pending")
    run("prune_zrank", *names)
    assert not zrank.keys("*{videos/4:*")
    assert not Build.objects.filter(index__in=names).exists()
    assert not set(names) & find_leftovers().keys()
    with pytest.raises(CommandError, match="is registered"):
        run("prune_zrank", index.holders[0].name)
    sync(index)
    assert_mirrors(type(index))
