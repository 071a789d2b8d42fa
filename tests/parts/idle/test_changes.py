"""Touches, and changes of write-behind scores, of the same index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.idle.touching import Touch
from django_zrank.redis.sending import send_all
from django_zrank.write_behind.changes import ChangeScores
from tests.parts.write_behind.test_flush_obstacles import in_step, locked
from tests.parts.write_behind.test_scores import INDEX, STORE, videos  # noqa: F401
from tests.testapp.models import Video

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

Declare = Callable[..., type[RankIndex]]


def test_a_sleeper_whose_row_is_locked_is_refused_at_once(declare: Declare) -> None:
    index = declare(Video, "-views", write_behind="increment", idle=("seen", timedelta(days=30)))
    video = Video.objects.create(views=1)
    call_command("sync_zrank", index.instance().name)
    with locked(video):
        for call in (index.scores.touch, index.scores.increment):
            with pytest.raises(IndexUnavailable, match="locked"):
                call(video)
    assert index.scores.increment(video) == 2
    assert in_step(index) == {str(video.pk): 2}


def test_a_touch_of_a_locked_row_is_refused_and_a_change_is_made(declare: Declare, zrank: Redis) -> None:
    index = declare(Video, "-views", write_behind="increment", idle=("seen", timedelta(days=30)))
    long_ago = timezone.now() - timedelta(days=20)
    first, second = (Video.objects.create(views=1, seen=long_ago) for _ in range(2))
    call_command("sync_zrank", index.instance().name)
    with locked(first):
        with pytest.raises(IndexUnavailable, match="locked"):
            index.scores.touch(first, second)
        assert index.scores.increment(first) == 2
    index.scores.touch(first, second)
    assert all(video.seen > long_ago for video in Video.objects.all())


def test_the_rule_is_noted_though_the_server_was_identified_for_a_touch(videos: list[Video]) -> None:  # noqa: F811
    """A change within a millisecond of one that notes no rule."""
    keys, member = STORE.live, str(videos[0].pk)
    STORE.client.hdel(keys.meta, "rule", "identified")
    touch = next(Touch(INDEX.layout, [member]).steps(keys))
    change = next(
        ChangeScores(INDEX.layout, INDEX.noted_rule, (0, 100), [(member, 5)], "once", 60).steps(keys)
    )
    _, changed = send_all(STORE.client, (*touch.calls, *change.calls), atomic=True)
    # Both are sent again to a server that doesn't know the script of the touch.
    assert changed in ([b"done", b"15"], [b"replayed", b"15"])
    assert STORE.client.hget(keys.meta, "rule") == b"sum:views:0"
