"""A release with another number of shards is rolled back while its worker removes the former shards."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.sync.interruptions import just_before
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.part("write_behind")]


@pytest.mark.xfail(strict=True, reason="unlink_former() doesn't look again before it unlinks")
def test_no_score_is_lost_that_is_taken_meanwhile(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former release takes over again, and takes a change, before the keys of its shard are unlinked."""
    name = VideoRank.instance().name
    later: Any = type("Later", (VideoRank,), {"name": name, "shards": 2})
    video = Video.objects.create(views=1)
    rebuild(VideoRank.instance())
    VideoRank.scores.increment(video, 5)

    def roll_back() -> None:
        rebuild(VideoRank.instance())
        VideoRank.scores.increment(video, 7)  # acknowledged

    just_before(monkeypatch, Store, "unlink_all", roll_back)
    rebuild(later.instance())
    for _ in range(3):
        sync(VideoRank.instance())
    assert VideoRank.ranking.score(video) == 13
