"""Write-behind scores, over shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.capture.triggers import install
from django_zrank.models import Build
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.write_behind import flush as flush_module
from tests.parts.shards.test_sync import restart, split
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Video
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = PlayerAscending.instance()


class TestScoresInRedis:
    """Write-behind scores follow into their columns, shard by shard."""

    @pytest.fixture
    def changed(self, declare: Callable[..., type[RankIndex]]) -> type[RankIndex]:
        """An index in three shards, of twelve videos whose totals of 0 to 11 have each grown by 100 in Redis."""
        index = declare(Video, "-total", write_behind="increment", shards=3)
        videos = Video.objects.bulk_create(Video(total=n) for n in range(12))
        sync(index)
        for video in videos:
            index.scores.increment({video: 100})
        return index

    def test_flushed_from_all_shards(self, changed: type[RankIndex]) -> None:
        assert read_gauges(changed.instance()).pending == 12
        assert sync(changed).worked["write_behind"] == 12
        assert sorted(Video.objects.values_list("total", flat=True)) == list(range(100, 112))
        sync(changed)
        assert_mirrors(changed)
        assert verify(changed.instance()).ok

    @pytest.mark.parametrize("has_restarted", [False, True])
    def test_nothing_is_lost_by_another_number_of_shards(
        self, changed: type[RankIndex], zrank: Redis, has_restarted: bool
    ) -> None:
        before = changed.instance().holders
        for part in before if has_restarted else ():
            restart(part)
        split(changed, 2)
        install("default", [changed.instance()])  # as migrate does
        sync(changed)
        sync(changed)
        assert sorted(Video.objects.values_list("total", flat=True)) == list(range(100, 112))
        assert_mirrors(changed)
        assert not any(zrank.keys(f"*{{{part.name}}}*") for part in before)
        assert not Build.objects.filter(index__in=[part.name for part in before]).exists()


def test_parts_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tuple(INDEX.shard(name) for name in "abc")
    monkeypatch.setattr(INDEX, "holders", parts)
    limits = []

    def write(part: RankIndex, *, limit: int | None, **how: Any) -> int:
        limits.append(limit)
        return 2

    monkeypatch.setattr(flush_module, "write_scores", write)
    assert flush_module.flush(INDEX, limit=5, skip_locked=True) == 6
    assert limits == [5, 3, 1]


@pytest.mark.parametrize("away", ["a", "abc"], ids=["one", "all"])
def test_parts_that_are_away_stop_no_other(away: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush fails only if none is left."""
    monkeypatch.setattr(INDEX, "holders", tuple(INDEX.shard(name) for name in "abc"))

    def write(part: RankIndex, **how: Any) -> int:
        if part.name in away:
            raise IndexUnavailable("no answer")
        return 2

    monkeypatch.setattr(flush_module, "write_scores", write)
    if away == "abc":
        with pytest.raises(IndexUnavailable, match="no answer"):
            flush_module.flush(INDEX)
    else:
        assert flush_module.flush(INDEX) == 4
