"""A verification asks little of Redis, in short calls, and may be interrupted between any two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connections
from django.db.models import F
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.exceptions import RebuildSuperseded
from django_zrank.models import Mark
from django_zrank.queries.request import Request
from django_zrank.redis.scripts import Script
from django_zrank.store import Store
from django_zrank.sync import verify as verification
from django_zrank.sync.health import Status
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import verify
from tests.builds import start
from tests.scripts import every_script
from tests.servers import RedisServer
from tests.sync.interruptions import comparing
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Competitor, Tag
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
    pytest.mark.part("dense"),
]

INDEX = CompetitorRank.instance()
COUNTING = {script for script in every_script() if script.name == "check_counts"}
OURS = {*COUNTING, "ZMSCORE", "HMGET", "ZSCAN", "HSCAN", "ZCARD", "HLEN"}


def populate(number: int, tags: int = 2) -> None:
    """Competitors, each with all tags."""
    with disable_sync():
        words = Tag.objects.bulk_create(Tag(word=f"tag {n}") for n in range(tags))
        competitors = Competitor.objects.bulk_create(
            Competitor(points=1 + n % 7, region=["kantou", "kansai"][n % 2]) for n in range(number)
        )
        between: Any = Competitor.tags.through
        between.objects.bulk_create(
            between(competitor=each, tag=tag) for each in competitors for tag in words
        )
    rebuild(INDEX)
    Mark.objects.all().delete()


@contextmanager
def observed(see: Callable[[Request[Any], Callable[[], list[Any]]], list[Any]]) -> Iterator[None]:
    """Hand what the verification asks of Redis to ``see``, with a function that sends it."""
    send = Store.send

    def sent(self: Store, request: Request[Any]) -> list[Any]:
        if any(call.command in OURS for call in request.calls):
            return see(request, lambda: send(self, request))
        return send(self, request)

    with mock.patch.object(Store, "send", sent):
        yield


def test_no_call_takes_long(zrank: Redis) -> None:
    """Counted in what is looked up or found: every member is wrong, and stands in many rankings."""
    populate(600, tags=10)
    live = Store(INDEX.name).live.root
    zrank.zunionstore(live, {live: 2})
    zrank.zadd(f"{live}:region:mu", {b"\1" * INDEX.layout.width + b"%d" % (10**9 + n): 1 for n in range(600)})
    looked_up: dict[Script | str, int] = {}

    def see(request: Request[Any], send: Callable[[], list[Any]]) -> list[Any]:
        replies, cost = send(), 0
        for call, reply in zip(request.calls, replies, strict=True):
            size = len(reply[1]) if call.command in ("ZSCAN", "HSCAN") else len(call.arguments)
            looked_up[call.command] = max(looked_up.get(call.command, 0), size)
            cost += size
        looked_up["transaction"] = max(looked_up.get("transaction", 0), cost * request.atomic)
        return replies

    with observed(see):
        report = verify(INDEX)
    assert (report.different.count, report.extra.count) == (600, 600)
    assert looked_up.keys() >= OURS - {"HSCAN"}
    assert {command for command, cost in looked_up.items() if cost > 1500} == set()


def test_a_batch_asks_few_rankings() -> None:
    """Regions alternate from row to row, and come one after the other."""
    populate(400)
    asked: list[str] = []

    def see(request: Request[Any], send: Callable[[], list[Any]]) -> list[Any]:
        asked.extend(str(call.keys[0]) for call in request.calls if call.command == "ZMSCORE")
        return send()

    with observed(see):
        assert verify(INDEX, batch_size=200).ok
    # 50 rows a batch, in eight batches: four of each region.
    assert sum("region:kansai'" in key for key in asked) == 4


def faults(client: Redis) -> set[str]:
    """Members that are wrong, each in another way: one to be read in every phase."""
    live = Store(INDEX.name).live.root
    (one, _), (two, score), (three, _), *_ = client.zrange(live, 0, 2, withscores=True)
    client.zrem(live, one)
    client.zadd(f"{live}:region:mu", {two: score})
    client.hdel(f"{live}:memberships", three[INDEX.layout.width :])
    client.zincrby(f"{live}:region:kansai:values", 1, client.zrange(f"{live}:region:kansai:values", 0, 0)[0])
    return {member[INDEX.layout.width :].decode() for member in (one, two, three)}


def move(wrong: set[str]) -> None:
    """A member that is right moves between rankings, pushed; another one, and only a mark tells of it."""
    one, two = Competitor.objects.exclude(pk__in=wrong).order_by("-pk")[:2]
    one.region, one.points = "tohoku", 100
    one.save()
    Competitor.objects.filter(pk=two.pk).update(points=F("points") + 50, region="kyushu")


def interrupted_at(number: int, act: Callable[[], Any]) -> Any:
    """The report of a verification, between two steps of whose comparison ``act`` is called."""
    reached: list[int] = []

    def interrupt(step: int) -> None:
        reached.append(step)
        if len(reached) == number:
            act()

    with comparing(interrupt):
        report = verify(INDEX, batch_size=4)
    assert len(reached) > number
    return report


STEPS = [6, 19, 40, 80]
"""Of 85: while rows are looked up, in the sizes, in the counts, and in the second look."""


@pytest.mark.parametrize("at", STEPS)
def test_members_that_move_between_two_calls(zrank: Redis, at: int) -> None:
    populate(12)
    wrong = faults(zrank)
    report = interrupted_at(at, lambda: move(wrong))
    assert (report.missing.count, report.different.count, report.extra.count) == (1, 2, 0)
    assert {
        example.member for drift in (report.missing, report.different) for example in drift.examples
    } == wrong
    assert verify(INDEX, repair=True).ok
    assert_mirrors(CompetitorRank)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("at", [3, 5])
def test_the_database_fails_between_two_pages(at: int) -> None:
    populate(120)
    pages = [0]

    def fail(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        pages[0] += "competitor" in sql
        if pages[0] == at:
            raise OperationalError("gone away")
        return execute(sql, *args)

    with (
        pytest.raises(OperationalError, match="gone away"),
        connections[INDEX.get_using()].execute_wrapper(fail),
    ):
        verify(INDEX, batch_size=4)
    assert pages[0] == at
    assert verify(INDEX).ok


@pytest.mark.parametrize("at", STEPS)
def test_redis_killed_between_two_calls(own_server: RedisServer, at: int) -> None:
    populate(12)
    faults(Store(INDEX.name).client)
    with pytest.raises(IndexUnavailable):
        interrupted_at(at, own_server.kill)
    own_server.start()
    report = verify(INDEX, repair=True)
    assert (report.ok, report.status_before) == (True, Status.EMPTY)
    assert_mirrors(CompetitorRank)


def test_a_rebuild_that_another_one_is_at_is_superseded(
    monkeypatch: pytest.MonkeyPatch, zrank: Redis
) -> None:
    """Rankings were evicted: another rebuild is repairing that, so this one raises."""
    populate(5)
    store, sync = Store(INDEX.name, INDEX.layout), verification.sync

    def evict(index: Any) -> Any:
        done = sync(index)
        zrank.delete(f"{store.live.root}:memberships")
        start(store, INDEX.new_build())
        return done

    monkeypatch.setattr(verification, "sync", evict)
    with pytest.raises(RebuildSuperseded):
        verify(INDEX, repair=True)
