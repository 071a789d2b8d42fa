"""Tenants: ``ZRANK["KEY_PREFIX"]`` is a function. What a process remembers of one tenant says nothing of another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from secrets import token_hex
from threading import Event, local
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from redis import Redis

from django_zrank.conf import key_prefix
from django_zrank.exceptions import IndexUnhealthy, NotBuilt
from django_zrank.recent import Recent
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild, running
from tests.populations import fill
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending, PlayerRank

_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
_of_thread = local()


def prefix() -> str:
    return f"zrank:{_tenant.get()}"


def prefix_of_thread() -> str:
    """As that of ``connection.schema_name``: every thread has a connection of its own."""
    return f"zrank:{getattr(_of_thread, 'tenant', 'nobody')}"


@contextmanager
def tenant(name: str) -> Iterator[None]:
    token, before = _tenant.set(name), vars(_of_thread).copy()
    _of_thread.tenant = name
    try:
        yield
    finally:
        _tenant.reset(token)
        vars(_of_thread).clear()
        vars(_of_thread).update(before)


@pytest.fixture(params=[prefix, prefix_of_thread], ids=["context", "thread"], autouse=True)
def by_function(request: Any, settings: Any, zrank: Redis) -> None:
    settings.ZRANK = {**getattr(settings, "ZRANK", {}), "KEY_PREFIX": request.param}


def prefixes(zrank: Redis) -> set[str]:
    """The prefixes of all keys but those of the fixture, which is of no tenant."""
    return {key.decode().partition(":{")[0] for key in zrank.scan_iter()} - {"zrank"}


def of(name: str, scores: dict[int, int]) -> None:
    with tenant(name):
        fill(PlayerAscending, scores)


@pytest.mark.part("groups")
def test_each_tenant_has_an_index_of_its_own(zrank: Redis) -> None:
    of("a", {1: 10, 2: 20})
    of("b", {2: 5, 3: 6})
    for _ in range(2):
        for name, expected in (("a", [1, 2]), ("b", [2, 3])):
            with tenant(name):
                assert [entry.pk for entry in PlayerAscending.ranking.top()] == expected
                assert PlayerAscending.ranking.rank(2) == expected.index(2) + 1
                PlayerAscending.group("live").add(expected[0], expires=timedelta(hours=1))
                assert set(PlayerAscending.group("live")) == {expected[0]}
                assert {entry.pk for entry in PlayerAscending.ranking.near(5, band=100)} == {*expected}
    assert prefixes(zrank) == {"zrank:a", "zrank:b"}


def test_trust_in_one_tenant_is_none_in_another() -> None:
    """A server is examined once a second, for each tenant."""
    sound, behind, empty = (f"{name}-{token_hex(4)}" for name in ("sound", "behind", "empty"))
    of(sound, {1: 10})
    of(behind, {1: 10})
    with tenant(behind):
        store = Store.of(PlayerAscending.instance())
        store.client.hset(store.keys.meta, "behind", "5")  # it lacks writes
    with tenant(sound):
        assert PlayerAscending.ranking.count() == 1
    with tenant(behind), pytest.raises(IndexUnhealthy):
        PlayerAscending.ranking.count()
    with tenant(empty), pytest.raises(NotBuilt):
        PlayerAscending.ranking.count()
    with tenant(sound):
        assert PlayerAscending.ranking.count() == 1


def test_what_is_kept_for_a_moment_is_kept_for_one_tenant() -> None:
    kept: Recent[int] = Recent()
    for name, value in (("a", 1), ("b", 2)):
        with tenant(name):
            assert kept.get("x") is None
            kept.replace("x", 0)
            assert kept.get("x") is None
            kept.keep("x", -1, 60)
            kept.replace("x", value)
    with tenant("a"):
        assert kept.get("x") == 1
        kept.forget("x")
        assert kept.get("x") is None
    with tenant("b"):
        assert kept.get("x") == 2


@pytest.mark.django_db(transaction=True)
def test_the_threads_of_a_rebuild_work_for_its_tenant(zrank: Redis) -> None:
    Player.objects.bulk_create(Player(level=level) for level in range(3000))
    with tenant("a"):
        rebuild(PlayerRank.instance())
        assert PlayerRank.ranking.count() == 3000
        found: list[str] = []
        with running("beside", lambda stop: found.append(key_prefix()), Event()):  # as the pulse of builds
            pass
        assert found == ["zrank:a"]
    assert prefixes(zrank) == {"zrank:a"}


def test_coroutines_of_several_tenants_at_once(by_function: None, settings: Any) -> None:
    if settings.ZRANK["KEY_PREFIX"] is prefix_of_thread:
        pytest.skip("the coroutines of a loop share its thread")
    for name in "abcde":
        of(name, {1: ord(name), ord(name): 1})

    async def ask(name: str) -> None:
        _tenant.set(name)
        for _ in range(20):
            assert await PlayerAscending.ranking.ascore(1) == ord(name)
            assert {entry.pk async for entry in PlayerAscending.ranking} == {1, ord(name)}
            await asyncio.sleep(0)

    async def ask_all() -> None:
        await asyncio.gather(*(asyncio.create_task(ask(name)) for name in "abcdeabcde"))

    asyncio.run(ask_all())


@pytest.mark.parametrize("wrong", ["", None, 7, "a{b", "}"])
def test_a_function_that_returns_no_prefix(settings: Any, wrong: Any) -> None:
    settings.ZRANK = {**settings.ZRANK, "KEY_PREFIX": lambda: wrong}
    with pytest.raises(ImproperlyConfigured, match=r"KEY_PREFIX.* must be text without braces, not"):
        PlayerAscending.ranking.count()


def test_a_function_is_right_and_a_number_is_not(settings: Any) -> None:
    assert [message for message in run_checks(tags=["zrank"]) if message.id == "zrank.E003"] == []
    settings.ZRANK = {**settings.ZRANK, "KEY_PREFIX": 7}
    (found,) = (message for message in run_checks(tags=["zrank"]) if message.id == "zrank.E003")
    assert "must be text without braces, or a function, not 7" in found.msg
