"""A verification asks little of Redis, in short calls, and may be interrupted between any two of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from threading import enumerate as enumerate_threads
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connections
from django.db.models import F
from redis import Redis

from django_zrank import IndexUnavailable, scripts
from django_zrank.exceptions import RebuildSuperseded
from django_zrank.models import Mark
from django_zrank.requests.request import Request
from django_zrank.scripts import Script
from django_zrank.store import Store, verifying
from django_zrank.sync import verify as verification
from django_zrank.sync.health import Verdict
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import verify
from tests.builds import start
from tests.servers import RedisServer
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Competitor, Tag
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = CompetitorRank.instance()
OURS = {
    scripts.READ_MEMBERS,
    scripts.FIND_STRAYS,
    scripts.CHECK_NAMES,
    scripts.CHECK_COUNTS,
    *("SCAN", "ZRANGE", "HSCAN"),
}


def populate(number: int, tags: int = 2) -> None:
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


def commands(client: Redis) -> int:
    """The number of commands that the server has run, those of scripts among them, since they were counted last."""
    found: Any = client.info("commandstats")
    client.config_resetstat()
    rest = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_evalsha", "cmdstat_eval"}
    return sum(stats["calls"] for name, stats in found.items() if name not in rest)


def test_no_member_of_a_healthy_index_is_looked_up(zrank: Redis) -> None:
    asked = []
    for number in (100, 600):
        Competitor.objects.all().delete()
        populate(number)
        commands(zrank)
        assert verify(INDEX).ok
        asked.append(commands(zrank))
    assert asked[0] < 100
    assert asked[1] - asked[0] < 0.1 * 500  # further pieces of a scan


def test_no_call_takes_long(zrank: Redis) -> None:
    """Counted in look-ups, and in what a scan finds: every member is wrong, and stands in many rankings."""
    populate(120, tags=20)
    live = Store(INDEX.name).live.root
    zrank.zunionstore(live, {live: 2})
    zrank.zadd(f"{live}:region:mu", {b"\1" * INDEX.layout.width + b"%d" % (10**9 + n): 1 for n in range(120)})
    looked_up: dict[Script | str, int] = {}

    def see(request: Request[Any], send: Callable[[], list[Any]]) -> list[Any]:
        commands(zrank)
        replies = send()
        command = request.calls[0].command
        if isinstance(command, Script):
            cost = commands(zrank)
        else:
            cost = sum(len(reply if command == "ZRANGE" else reply[1]) for reply in replies)
        looked_up[command] = max(looked_up.get(command, 0), cost)
        return replies

    with observed(see):
        report = verify(INDEX)
    assert (report.different.count, report.extra.count) == (120, 120)
    assert looked_up.keys() == OURS - {"SCAN"}
    assert {command for command, cost in looked_up.items() if cost > 1200} == set()
    with observed(see):
        assert verify(INDEX, repair=True).ok
    assert {command for command, cost in looked_up.items() if cost > 1200} == set()


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


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece is of a few members."""
    monkeypatch.setattr(verifying, "_PIECE", 4)
    monkeypatch.setattr(verifying, "_AT_ONCE", 2)
    monkeypatch.setattr(verifying, "_ITEMS", 2)


def interrupted(at: float, act: Callable[[], Any]) -> Any:
    """The report of a verification between two calls of which ``act`` is called, at a share of the way."""
    calls = [0]

    def count(request: Request[Any], send: Callable[[], list[Any]]) -> list[Any]:
        calls[0] += 1
        return send()

    with observed(count):
        verify(INDEX, batch_size=4)
    number, calls[0] = int(at * calls[0]), 0

    def interrupt(request: Request[Any], send: Callable[[], list[Any]]) -> list[Any]:
        calls[0] += 1
        if calls[0] == number:
            act()
            if current_thread() is not main_thread():
                connections.close_all()  # nobody else closes what was opened in the thread that asks ahead
        return send()

    with observed(interrupt):
        report = verify(INDEX, batch_size=4)
    assert calls[0] > number
    return report


SHARES = [0.1, 0.4, 0.6, 0.9]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("at", SHARES)
def test_members_that_move_between_two_calls(zrank: Redis, at: float) -> None:
    populate(12)
    wrong = faults(zrank)
    report = interrupted(at, lambda: move(wrong))
    assert (report.missing.count, report.different.count, report.extra.count) == (1, 2, 0)
    assert {
        example.member for drift in (report.missing, report.different) for example in drift.examples
    } == wrong
    assert verify(INDEX, repair=True).ok
    assert_mirrors(CompetitorRank)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("at", SHARES)
def test_a_rebuild_between_two_calls(zrank: Redis, at: float) -> None:
    populate(12)
    faults(zrank)
    report = interrupted(at, lambda: rebuild(INDEX))
    assert (report.ok, report.drift, report.rows, report.members) == (True, 0, 12, 12)


@contextmanager
def leaving_no_thread() -> Iterator[None]:
    """An exception raised inside is still known, with its frames, when threads are counted."""
    before, frozen = enumerate_threads(), gc.get_freeze_count()
    yield
    assert enumerate_threads() == before
    assert gc.get_freeze_count() == frozen


@pytest.mark.usefixtures("short", "zrank")
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
        leaving_no_thread(),
        pytest.raises(OperationalError, match="gone away") as caught,
        connections[INDEX.get_using()].execute_wrapper(fail),
    ):
        verify(INDEX, batch_size=4)
    assert pages[0] == at
    assert any(entry.name == "add_sides" for entry in caught.traceback)
    assert verify(INDEX).ok


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("at", SHARES)
def test_redis_killed_between_two_calls(own_server: RedisServer, at: float) -> None:
    populate(12)
    faults(Store(INDEX.name).client)
    with leaving_no_thread(), pytest.raises(IndexUnavailable):
        interrupted(at, own_server.kill)
    own_server.start()
    report = verify(INDEX, repair=True)
    assert (report.ok, report.verdict_before) == (True, Verdict.EMPTY)
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
        start(store, INDEX.new_generation())
        return done

    monkeypatch.setattr(verification, "sync", evict)
    with pytest.raises(RebuildSuperseded):
        verify(INDEX, repair=True)
