"""Changes of scores in blocking code and in coroutines: the same answers and errors, and none made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_zrank import IndexUnavailable, NotRanked, RankIndex
from django_zrank.exceptions import IndexUnhealthy
from django_zrank.redis import loops, reader
from django_zrank.scores import Scores
from django_zrank.write_behind.flush import flush
from tests.sync.conftest import use_redis
from tests.sync.mirror import contents
from tests.test_async_versions import Both, verbs
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

from .test_scores import INDEX, STORE, column, pending, restart

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

both_ways = pytest.mark.parametrize("way", [lambda scores: scores, Both], ids=["blocking", "coroutine"])

Way = Callable[[Any], Any]


@pytest.fixture
def video() -> Video:
    return Video.objects.create(views=10)


def test_every_verb_is_asked_here() -> None:
    assert verbs(Scores) - {"touch"} == {"change", "increment", "submit"}


@both_ways
def test_increments(way: Way, video: Video) -> None:
    scores, other = way(VideoRank.scores), Video.objects.create(views=20)
    assert scores.increment(video) == 11
    assert scores.increment({video: 2, other: -3}) == {video: 13, other: 17}
    assert [scores.increment(video, 5, key="a") for _ in range(2)] == [18, 18]
    assert pending() == {str(video.pk): 8, str(other.pk): -3}
    assert [scores.change(video, 2, key="b") for _ in range(2)] == [(20, False), (20, True)]
    assert scores.change(video, -2) == (18, False)
    flush(INDEX)
    assert column() == {str(video.pk): 18, str(other.pk): 17} == contents(VideoRank)


@both_ways
@pytest.mark.parametrize(
    ("order", "write_behind", "found"),
    [
        ("-views", "best", [20, 25, 25]),
        ("views", "best", [5, 5, 5]),
        ("-views", "latest", [5, 25, 7]),
    ],
)
def test_submissions(
    way: Way, order: str, write_behind: str, found: list[int], declare: Callable[..., type[RankIndex]]
) -> None:
    index = declare(Video, order, write_behind=write_behind)
    video = Video.objects.create(views=20)
    assert [way(index.scores).submit(video, value) for value in (5, 25, 7)] == found
    flush(index.instance())
    assert column(index) == {str(video.pk): found[-1]} == contents(index)


@both_ways
def test_a_member_that_is_not_ranked_is_looked_for(way: Way, video: Video) -> None:
    Video.objects.bulk_create([hidden := Video(views=5)])  # sends no signal
    assert way(VideoRank.scores).increment(hidden, 2) == 7
    with pytest.raises(NotRanked, match="999 is not ranked in 'video'"):
        way(VideoRank.scores).increment({999: 1, video: 1})
    assert pending() == {str(hidden.pk): 2}


@both_ways
@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s, v: s.increment(v, 1.5), ValueError, "by: expected a whole number, not 1.5"),
        (lambda s, v: s.increment(v, "2"), ValueError, "by: expected a number, not '2'"),
        (lambda s, v: s.increment(v, 2**60), ValueError, "by: .* is beyond"),
        (lambda s, v: s.increment({v: 1, v.pk: 1}), ValueError, "member: .* is named twice"),
        (lambda s, v: s.increment({v: 1}, 2), ValueError, "by: several members"),
        (lambda s, v: s.increment("x"), ValueError, "member: expected a primary key of .*; 'x' is not a"),
        (lambda s, v: s.increment(dict.fromkeys(range(151), 1)), ValueError, "at most 150"),
        (lambda s, v: s.increment(v, key=5), ValueError, "key: expected text"),
        (lambda s, v: s.increment(v, key="\ud800"), ValueError, "key: expected text"),
        (lambda s, v: s.increment(10**6), NotRanked, "1000000 is not ranked"),
        (lambda s, v: s.submit(v, 5), TypeError, "needs write_behind = 'best' or 'latest'; .* 'increment'"),
        (lambda s, v: s.increment(v, 2**53), ValueError, "would leave the column's range"),
    ],
)
def test_bad_input_changes_nothing(way: Way, call: Any, error: Any, match: str, video: Video) -> None:
    with pytest.raises(error, match=match):
        call(way(VideoRank.scores), video)
    assert (pending(), contents(VideoRank)) == ({}, {str(video.pk): 10})


@both_ways
def test_nothing_is_changed_on_a_server_that_is_not_trusted(way: Way, video: Video) -> None:
    restart(STORE.client)
    with pytest.raises(IndexUnhealthy):
        way(VideoRank.scores).increment(video)
    assert pending() == {}


def test_many_at_once_are_all_counted_and_the_server_is_looked_up_once(video: Video) -> None:
    async def change() -> list[int]:
        return await asyncio.gather(*(VideoRank.scores.aincrement(video) for _ in range(50)))

    with mock.patch.object(reader, "may_be_written", side_effect=reader.may_be_written) as looked:
        assert sorted(async_to_sync(change)()) == list(range(11, 61))
    assert looked.call_count == 1
    assert pending() == {str(video.pk): 50}


# A reply that is lost


def increment(video: Video, key: str) -> Any:
    """Increment by a connection that brings no reply."""
    client = VideoRank.ranking._reader.client
    used = client.connection_pool.get_connection()
    used.send_command("CLIENT", "REPLY", "OFF")
    client.connection_pool.release(used)
    return VideoRank.scores.increment(video, key=key)


@async_to_sync
async def aincrement(video: Video, key: str) -> Any:
    """The same in a coroutine."""
    await VideoRank.ranking.acount()
    loop = await loops.running_loop()
    pool: Any = (await loop.client("zrank")).redis.connection_pool  # type: ignore[union-attr]
    loop.until[VideoRank.ranking._reader.trusted_server.key] = float(
        "inf"
    )  # to look it up would take that connection
    used = await pool.get_connection()
    await used.send_command("CLIENT", "REPLY", "OFF")
    await pool.release(used)
    return await VideoRank.scores.aincrement(video, key=key)


@pytest.mark.parametrize("change", [increment, aincrement], ids=["blocking", "coroutine"])
@pytest.mark.parametrize("key", ["", "a"])
def test_a_change_is_sent_again_only_under_a_key(change: Any, key: str, video: Video, settings: Any) -> None:
    location = settings.CACHES["zrank"]["LOCATION"]
    location += f"{'&' if '?' in location else '?'}client_name=of-{uuid4().hex}"  # a pool of its own
    retry = {"CONNECTION_POOL_KWARGS": {"retry": Retry(NoBackoff(), 2)}}
    use_redis(settings, location, SOCKET_TIMEOUT=1.0, **retry)
    for given in ("", "b"):  # the server knows both scripts
        VideoRank.scores.increment(video, key=given)
    if key:
        assert change(video, key) == 13
    else:
        with pytest.raises(IndexUnavailable):
            change(video, key)
    assert pending() == {str(video.pk): 3}
