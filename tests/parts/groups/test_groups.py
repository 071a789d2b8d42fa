"""Groups: audiences that the caller keeps."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from math import isinf
from random import Random
from threading import Barrier
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync
from redis import Redis
from redis.connection import Connection
from redis.exceptions import ConnectionError

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.groups.keys import group_key
from django_zrank.redis import asynchronous
from tests.populations import populate
from tests.sharded import sharded
from tests.test_ranking import CompetitorRank
from tests.testapp.models import Competitor


class GroupRank(CompetitorRank):
    name = "grouped"


class TiedGroupRank(CompetitorRank):
    name = "grouped-tied"
    order = ("-points", "lost")


class PlainGroupRank(CompetitorRank):
    name = "grouped-plain"
    facets = ()


INDEXES = [GroupRank, TiedGroupRank, PlainGroupRank]
ROW: dict[str, Any] = {"lost": 0, "region": "kantou", "platform": "pc", "tags": set()}


@pytest.fixture(params=INDEXES, ids=lambda index: index.name)
def index(request: pytest.FixtureRequest, zrank: Redis) -> type[RankIndex]:
    """Ten members with as many points as their numbers; the even ones are from kansai."""
    rows = {pk: ROW | {"points": pk} | ({"region": "kansai"} if pk % 2 == 0 else {}) for pk in range(1, 11)}
    populate(request.param, rows)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.part("combined")
def test_a_group_is_filtered_by(index: type[RankIndex]) -> None:
    show = index.group("live:42")
    assert show.add(3, 7, 8, 99) == 4
    assert show.add(3) == 0
    assert [entry.pk for entry in index.ranking.filter(group="live:42").top()] == [8, 7, 3]
    assert index.ranking.filter(group="live:42").count() == 3
    assert show.count() == 4
    assert index.ranking.filter(group="live:42").rank(3) == 3
    drawn = index.ranking.filter(group="live:42").recommend(5, 10, band=10)
    assert [entry.pk for entry in drawn] == [8, 7, 3]
    assert [entry.rank for entry in drawn] == [None] * 3
    assert {entry.pk for entry in index.ranking.exclude(group="live:42").top()} == {1, 2, 4, 5, 6, 9, 10}


@pytest.mark.part("combined")
def test_members_leave(index: type[RankIndex]) -> None:
    show = index.group("live:43")
    show.add(1, 2, 3)
    assert show.remove(2, 55) == 1
    assert 3 in show
    assert 2 not in show
    assert show.count() == 2
    show.clear()
    assert show.count() == 0
    assert index.ranking.filter(group="live:43").top() == []


def pass_a_minute(zrank: Redis, index: type[RankIndex], group: str) -> None:
    """Let the times of a group's members end a minute earlier."""
    key = group_key(index.ranking.store.keys, group)
    for member, until in zrank.zrange(key, 0, -1, withscores=True):
        if not isinf(until):
            zrank.zincrby(key, -60_000_000, member)


@pytest.mark.part("combined")
def test_members_expire_each_by_itself(index: type[RankIndex], zrank: Redis) -> None:
    show = index.group("live:44")
    show.add(1, 2, expires=timedelta(minutes=1))
    show.add(2, expires=timedelta(hours=1))  # a viewer's browser that is still there
    show.add(3)
    assert 1 in show
    pass_a_minute(zrank, index, "live%3A44")
    assert 1 not in show
    assert show.count() == 2
    assert {entry.pk for entry in index.ranking.filter(group="live:44").recommend(9, band=10)} == {2, 3}
    assert [entry.pk for entry in index.ranking.filter(group="live:44").top()] == [3, 2]


def test_one_whose_time_has_ended_is_new_again(index: type[RankIndex], zrank: Redis) -> None:
    show = index.group("live:45")
    assert show.add(1, 2, expires=timedelta(minutes=1)) == 2
    pass_a_minute(zrank, index, "live%3A45")
    assert show.remove(1) == 0
    assert show.add(2, expires=timedelta(minutes=1)) == 1
    pass_a_minute(zrank, index, "live%3A45")
    assert show.add(3) == 1
    assert zrank.zcard(group_key(index.ranking.store.keys, "live%3A45")) == 1


@pytest.mark.part("combined")
def test_groups_combine(index: type[RankIndex]) -> None:
    index.group("a").add(1, 2, 3)
    index.group("b").add(3, 4)
    ranking = index.ranking
    assert [entry.pk for entry in ranking.filter(group__in=["a", "b"]).top()] == [4, 3, 2, 1]
    assert [entry.pk for entry in ranking.filter(group="a").filter(group="b").top()] == [3]
    assert [entry.pk for entry in ranking.filter(group="a").exclude(group="b").top()] == [2, 1]
    assert ranking.filter(group__in=[]).count() == 0


@pytest.mark.part("combined")
def test_each_filter_takes_fifty_groups(index: type[RankIndex]) -> None:
    index.group("49").add(1, 2)
    names = list(map(str, range(50)))
    assert index.ranking.filter(group__in=names).count() == 2
    for narrow in (index.ranking.filter, index.ranking.exclude):
        with pytest.raises(ValueError, match="group__in: expected at most 50 groups, not 51"):
            narrow(group__in=[*names, "50"])


@pytest.mark.part("combined")
def test_a_group_may_be_larger_than_the_index(index: type[RankIndex]) -> None:
    index.group("everybody").add(*range(5, 60))
    ranking = index.ranking.filter(group="everybody")
    assert [(entry.pk, entry.score) for entry in ranking.top()] == [(pk, pk) for pk in range(10, 4, -1)]


@pytest.mark.part("combined")
def test_an_audience_by_region(zrank: Redis) -> None:
    rows = {pk: ROW | {"points": pk} | ({"region": "kansai"} if pk % 3 == 0 else {}) for pk in range(1, 11)}
    populate(GroupRank, rows)
    GroupRank.group("show").add(*range(3, 8))
    audience = GroupRank.ranking.filter(group="show")
    assert audience.counts("region") == {"kantou": 3, "kansai": 2}
    assert audience.filter(region="kansai", platform="pc").count() == 2


def test_a_member_is_claimed_once(index: type[RankIndex], zrank: Redis) -> None:
    queue = index.group("queue")
    queue.add(1, 2, 99)
    queue.add(3, expires=timedelta(minutes=1))
    queue.add(4, expires=timedelta(hours=1))
    pass_a_minute(zrank, index, "queue")
    assert queue.claim(4, 3, 1, 1, 5) == [4, 1]
    assert queue.claim(4, 1) == []
    assert queue.count() == 2
    assert queue.claim() == []
    with pytest.raises(ValueError, match="members: expected at most 500, not 501"):
        queue.claim(*range(501))


def test_callers_that_claim_at_once_share_no_member(index: type[RankIndex]) -> None:
    queue = index.group("queue")
    queue.add(*range(300))
    barrier = Barrier(6)

    def claim(seed: int) -> list[Any]:
        chance, mine = Random(seed), []
        barrier.wait()
        for _ in range(200):
            mine += queue.claim(*chance.sample(range(300), 4))
        return mine

    with ThreadPoolExecutor(6) as threads:
        claimed = [member for found in threads.map(claim, range(6)) for member in found]
    assert len(claimed) == len(set(claimed))
    assert len(claimed) + queue.count() == 300


def test_a_claim_whose_reply_is_lost_is_not_sent_again(zrank: Redis) -> None:
    """The client would, and would find that nobody is there."""
    populate(PlainGroupRank, {1: ROW | {"points": 1}})
    queue = PlainGroupRank.group("queue")
    queue.add(1)
    queue.claim(2)
    receive = Connection.read_response
    lost = mock.Mock(side_effect=ConnectionError("lost"))
    with (
        mock.patch.object(
            Connection, "read_response", lambda self, *a, **k: (receive(self, *a, **k), lost())
        ),
        pytest.raises(IndexUnavailable),
    ):
        queue.claim(1)
    assert lost.call_count == 1
    assert queue.count() == 0


@pytest.mark.part("shards")
def test_what_a_cancelled_claim_took_is_logged(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It took the members of the first shard, and waits for the second."""
    queue, members = sharded(PlainGroupRank, 3).group("queue"), range(1, 31)
    queue.add(members)
    send, first = asynchronous.send_once, asyncio.Event()

    async def send_one(*given: Any) -> Any:
        if first.is_set():
            await asyncio.sleep(60)
        replies = await send(*given)
        first.set()
        return replies

    async def cancel() -> None:
        claim = asyncio.create_task(queue.aclaim(members))
        await first.wait()
        await asyncio.sleep(0)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert "was cancelled, so nobody got these" in caplog.text

    monkeypatch.setattr(asynchronous, "send_once", send_one)
    asyncio.run(cancel())
    (record,) = caplog.records
    named = set(map(int, record.message.partition("these: ")[2].split(", ")))
    assert named == {*members} - {*queue} != set()


@pytest.mark.part("combined")
def test_names_are_kept_apart(index: type[RankIndex]) -> None:
    index.group("a b").add(1)
    index.group("a%20b").add(2)
    assert index.group("a b").count() == 1
    assert [entry.pk for entry in index.ranking.filter(group="a%20b").top()] == [2]


@pytest.mark.parametrize("kind", [list, set, iter, tuple, dict.fromkeys])
def test_members_are_given_as_one_iterable(index: type[RankIndex], kind: Any) -> None:
    show = index.group("live:46")
    assert show.add(kind([1, 2, 99])) == 3
    assert show.remove(kind([2, 3])) == 1
    assert show.add(kind([])) == 0
    assert set(show) == {1, 99}


@pytest.mark.django_db(transaction=True)
def test_members_are_given_as_a_query(index: type[RankIndex], django_assert_num_queries: Any) -> None:
    Competitor.objects.bulk_create(Competitor(pk=pk, points=pk, lost=0) for pk in (2, 3))
    with django_assert_num_queries(2):
        assert index.group("live:46").add(Competitor.objects.all(), expires=timedelta(hours=1)) == 2
        assert async_to_sync(index.group("live:46").aremove)(Competitor.objects.filter(pk=2)) == 1
    assert list(index.group("live:46")) == [3]


def test_a_list_among_several_arguments(index: type[RankIndex]) -> None:
    show = index.group("live:46")
    for call in (show.add, show.remove):
        with pytest.raises(ValueError, match=r"members: expected .* one iterable of them, not \[2, 3\]"):
            call(1, [2, 3])
    assert len(show) == 0


def test_a_group_is_counted_and_iterated_over(index: type[RankIndex], zrank: Redis) -> None:
    show = index.group("live:47")
    assert list(show) == []
    show.add(range(1, 2001))
    show.add(range(2001, 2601), expires=timedelta(minutes=1))
    assert len(show) == 2600
    assert sorted(show) == [*range(1, 2601)]
    pass_a_minute(zrank, index, "live%3A47")
    assert len(show) == 2000
    members = list(show)
    assert sorted(members) == [*range(1, 2001)]


def test_members_that_stay_are_iterated_over_once(index: type[RankIndex]) -> None:
    """While so many join that Redis enlarges its hash table."""
    show = index.group("live:48")
    show.add(range(1000))
    reading = iter(show)
    members = [next(reading)]
    show.add(range(1000, 20_000))
    members += reading
    assert len(members) == len(set(members))
    assert set(members) >= set(range(1000))


@pytest.mark.parametrize("name", ["", None, 7, b"a", "\ud800"])
def test_a_group_has_a_name(index: type[RankIndex], name: Any) -> None:
    with pytest.raises(ValueError, match="group"):
        index.group(name)
    with pytest.raises(ValueError, match="group"):
        index.ranking.filter(group=name)


@pytest.mark.parametrize("expires", [timedelta(0), timedelta(seconds=-1), 5])
def test_an_expiry_lies_ahead(index: type[RankIndex], expires: Any) -> None:
    with pytest.raises(ValueError, match="expires"):
        index.group("a").add(1, expires=expires)


def test_members_are_of_the_model(index: type[RankIndex]) -> None:
    with pytest.raises(ValueError, match="members"):
        index.group("a").add("seven")


def test_without_a_server(index: type[RankIndex], settings: Any) -> None:
    gone = {**settings.CACHES["zrank"], "LOCATION": "redis://127.0.0.1:2/0"}
    settings.CACHES = {**settings.CACHES, "zrank": gone}
    with pytest.raises(IndexUnavailable):
        index.group("a").add(1)
