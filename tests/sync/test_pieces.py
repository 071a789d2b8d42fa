"""A push, a drain and a rebuild go in pieces; anything may happen between two of them."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any

import pytest
from django.db import connections
from redis import Redis

from django_zrank import store as store_module
from django_zrank.queries.request import Request
from django_zrank.redis import executor
from django_zrank.redis.scripts import Script
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from tests.keyspace import everything
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Competitor
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = CompetitorRank.instance()
NUMBER = 12

Between = Callable[[str, Callable[[], Any]], list[str]]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def population(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Members in facets, whose changes wait as marks; each piece takes few of them."""
    monkeypatch.setattr(store_module, "WRITTEN", 10)
    monkeypatch.setattr(store_module, "LOADED", 10)
    rows = [Competitor(points=n, region=f"region {n % 2}", platform=f"{n % 3}") for n in range(NUMBER)]
    Competitor.objects.bulk_create(rows)
    rebuild(INDEX)
    Competitor.objects.update(region="elsewhere", points=5)
    return [row.pk for row in rows]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """A function that lets something happen, once, between the first two calls of a script; returns the calls."""
    send_request = executor.send_request

    def arrange(script: str, happen: Callable[[], Any]) -> list[str]:
        calls: list[str] = []

        def one(client: Any, request: Request) -> list[Any]:
            replies = send_request(client, request)
            if script in [call.command.name for call in request.calls if isinstance(call.command, Script)]:
                calls.append(script)
                if len(calls) == 1:
                    try:
                        happen()
                    finally:
                        if current_thread() is not main_thread():
                            connections.close_all()  # nobody else closes what this thread has opened
            return replies

        monkeypatch.setattr(executor, "send_request", one)
        return calls

    return arrange


def settle() -> None:
    drain(INDEX)
    assert not waiting_marks(INDEX).exists()
    assert_mirrors(CompetitorRank)


def kill() -> None:
    raise Killed


def move(pks: list[Any]) -> Callable[[], Any]:
    """Members move to another facet, and somebody else pushes them."""

    def happen() -> None:
        Competitor.objects.filter(pk__in=pks).update(region="far away", platform="9", points=3)
        push(INDEX, pks)

    return happen


def test_a_push_goes_in_pieces_under_one_epoch(between: Between, population: list[Any]) -> None:
    calls = between("apply_changes", lambda: None)
    store = Store(INDEX.name)
    before = int(store.check_health().applied)
    version = push(INDEX, population).written[INDEX].version
    assert len(calls) > 2
    assert version == int(store.check_health().applied) == before + len(calls)
    assert_mirrors(CompetitorRank)


def test_a_member_moves_between_two_pieces_of_a_push(between: Between, population: list[Any]) -> None:
    """One that is written already, and one that is not."""
    between("apply_changes", move([population[0], population[-1]]))
    push(INDEX, population)
    assert_mirrors(CompetitorRank)
    settle()


def test_a_rebuild_is_swapped_between_two_pieces_of_a_drain(between: Between) -> None:
    between("apply_changes", lambda: rebuild(INDEX))
    settle()


def test_a_drain_is_killed_between_two_pieces(between: Between) -> None:
    number = waiting_marks(INDEX).count()
    between("apply_changes", kill)
    with pytest.raises(Killed):
        drain(INDEX)
    assert waiting_marks(INDEX).count() == number
    settle()


def test_redis_restarts_empty_between_two_pieces_of_a_drain(between: Between, zrank: Redis) -> None:
    number = waiting_marks(INDEX).count()
    between("apply_changes", zrank.flushall)
    with pytest.raises(Exception, match="not built"):
        drain(INDEX)
    assert waiting_marks(INDEX).count() == number
    rebuild(INDEX)
    settle()


def test_a_member_moves_between_two_pieces_of_a_rebuild(between: Between, population: list[Any]) -> None:
    calls = between("load_rows", move([population[0], population[-1]]))
    rebuild(INDEX)
    assert len(calls) > 2
    assert_mirrors(CompetitorRank)
    settle()


def test_a_rebuild_is_killed_between_two_pieces(between: Between, zrank: Redis) -> None:
    store = Store(INDEX.name)
    before = everything(zrank, store.live.root)
    between("load_rows", kill)
    with pytest.raises(Killed):
        rebuild(INDEX)
    assert everything(zrank, store.live.root) == before
    settle()
    rebuild(INDEX)
    roots = {key.decode().split(":")[2] for key in zrank.scan_iter("*}:*-*")}
    assert roots == {store.learn().build}
