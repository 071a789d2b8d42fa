"""Redis is down, hangs, or comes back: saves go on, are not kept waiting, and are pushed again."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.redis import executor
from django_zrank.signals import push_failed
from django_zrank.store import Store
from django_zrank.sync import push, signal_handlers
from django_zrank.sync.in_step import breaker
from django_zrank.sync.rebuild import rebuild
from tests.servers import RedisServer
from tests.sync.conftest import Clock, use_redis
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Club, Nickname, Player
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("undrained")]


@pytest.fixture
def down(own_server: RedisServer, clock: Clock) -> RedisServer:
    """A server that was there, and was stopped."""
    own_server.stop()
    return own_server


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# Down


def test_saves_and_deletes_succeed_and_one_warning_is_logged(
    down: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for nick in "abc":
        Nickname.objects.create(nick=nick, score=1)
    Player.objects.create(level=5)
    Nickname.objects.get(nick="b").delete()
    with transaction.atomic():
        Nickname.objects.create(nick="d", score=1)
    assert set(Nickname.objects.values_list("nick", flat=True)) == {"a", "c", "d"}
    (warning,) = messages(caplog, logging.WARNING)
    assert "'nickname'" in warning
    assert "can't be reached" in warning


def test_the_breaker_spares_the_next_pushes_the_wait(
    down: RedisServer, clock: Clock, round_trips: list[str], settings: Any
) -> None:
    for nick in "abc":
        Nickname.objects.create(nick=nick, score=1)
    assert round_trips == ["begin_write"]
    clock.advance(4.9)
    Nickname.objects.create(nick="d", score=1)
    assert round_trips == ["begin_write"]
    clock.advance(0.2)
    Nickname.objects.create(nick="e", score=1)
    Nickname.objects.create(nick="f", score=1)
    assert round_trips == ["begin_write"] * 2


def test_retry_after_is_a_setting(
    down: RedisServer, clock: Clock, round_trips: list[str], settings: Any
) -> None:
    """The other indexes of a transaction are spared, too."""
    settings.ZRANK = {"RETRY_AFTER": 60.0}
    Player.objects.create(level=5)  # in two indexes
    assert round_trips == ["begin_write"]
    clock.advance(59)
    Nickname.objects.create(nick="b", score=1)
    assert round_trips == ["begin_write"]


def test_the_project_is_told_whom_a_push_has_not_reached(
    down: RedisServer, hear: Callable[..., list[Any]]
) -> None:
    """Once for each push that was tried; and a receiver that fails doesn't fail the save."""
    heard, _ = hear(push_failed, "sender", "error", "members"), hear(push_failed, "no such argument")
    with transaction.atomic():
        Nickname.objects.create(nick="a", score=1)
        Nickname.objects.create(nick="b", score=1)
    Nickname.objects.create(nick="c", score=1)  # not tried
    ((index, error, members),) = heard
    assert (index.name, type(error), members) == ("nickname", IndexUnavailable, {"a", "b"})
    assert Nickname.objects.count() == 3


# Back again


def test_pushes_go_on_when_the_server_is_back(
    down: RedisServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="django_zrank")
    Nickname.objects.create(nick="missed", score=1)
    down.start()
    rebuild(NicknameRank.instance())
    clock.advance(5.1)
    Nickname.objects.create(nick="a", score=1)
    assert_mirrors(NicknameRank)
    assert len(messages(caplog, logging.INFO)) == 1
    assert "again" in messages(caplog, logging.INFO)[0]


def test_each_outage_is_warned_of_once(
    down: RedisServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for outage in range(2):
        for save in range(3):
            Nickname.objects.create(nick=f"{outage} {save}", score=1)
            clock.advance(5.1)
        assert len(messages(caplog, logging.WARNING)) == outage + 1
        down.start()
        rebuild(NicknameRank.instance())
        Nickname.objects.create(nick=f"{outage} back", score=1)
        down.stop()


def test_a_server_that_came_back_empty_has_ended_the_outage(
    down: RedisServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    Nickname.objects.create(nick="a", score=1)
    down.start()
    clock.advance(5.1)
    Nickname.objects.create(nick="b", score=1)
    down.stop()
    Nickname.objects.create(nick="c", score=1)
    first, second, third = messages(caplog, logging.WARNING)
    assert "not built" in second
    assert "can't be reached" in first
    assert "can't be reached" in third


def test_a_save_that_has_nothing_to_push_ends_no_outage(
    down: RedisServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="django_zrank")
    Nickname.objects.create(nick="a", score=1)
    clock.advance(5.1)
    Club.objects.create()  # of nobody
    assert messages(caplog, logging.INFO) == []


def test_an_error_reply_opens_the_breaker_too(
    zrank: Any, clock: Clock, round_trips: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    zrank.set(Store("nickname").live.root, "not a sorted set")
    for nick in "ab":
        Nickname.objects.create(nick=nick, score=1)
    assert round_trips == ["begin_write", "apply_changes"]
    (warning,) = messages(caplog, logging.WARNING)
    assert "WRONGTYPE" in warning


# Hanging

TIMEOUT = 0.1


@pytest.fixture
def hanging(settings: Any, clock: Clock) -> Iterator[socket.socket]:
    """A server that takes connections, and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        use_redis(
            settings,
            f"redis://127.0.0.1:{port}/0",
            SOCKET_TIMEOUT=TIMEOUT,
            SOCKET_CONNECT_TIMEOUT=TIMEOUT,
        )
        yield server


def connections_to(server: socket.socket) -> int:
    """The number of clients that have connected. Each must have hung up by itself: else this waits, and fails."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            client, _ = server.accept()
        except BlockingIOError:
            return count
        count += 1
        with client:
            client.settimeout(30)
            while client.recv(4096):
                pass


def test_a_call_waits_no_longer_than_the_timeout_and_only_once(
    hanging: socket.socket, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for nick in "abc":
        Nickname.objects.create(nick=nick, score=1)
    # redis-py left alone tries ten times, with a connection each.
    assert connections_to(hanging) == 1
    assert len(messages(caplog, logging.WARNING)) == 1
    clock.advance(5.1)
    Nickname.objects.create(nick="d", score=1)
    assert connections_to(hanging) == 1
    assert Nickname.objects.count() == 4
    with pytest.raises(IndexUnavailable):
        NicknameRank.ranking.count()
    assert connections_to(hanging) == 1


# Slow


def test_a_save_has_one_budget_for_all_indexes(
    own_server: RedisServer, clock: Clock, round_trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes nearly as long as the time-out allows for each call. No second batch is begun."""
    send_request = executor.send_request

    def slow(*args: Any) -> Any:
        clock.advance(0.9)
        return send_request(*args)

    monkeypatch.setattr(executor, "send_request", slow)
    monkeypatch.setattr(signal_handlers, "monotonic", clock)
    monkeypatch.setattr(push, "monotonic", clock)
    monkeypatch.setattr(push, "_BATCH", 1)
    Player.objects.create(level=5)  # in two indexes
    assert round_trips == ["begin_write", "apply_changes"]


def test_a_save_begins_no_drain_once_its_time_is_up(
    zrank: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the first index takes all of it; the second index is left to the next save."""
    begun: list[RankIndex] = []

    def drain_slowly(index: RankIndex) -> None:
        begun.append(index)
        clock.advance(1.0)

    monkeypatch.setattr(signal_handlers, "monotonic", clock)
    monkeypatch.setattr(push, "monotonic", clock)
    monkeypatch.setattr(signal_handlers, "drain_soon", drain_slowly)
    Player.objects.create(level=5)  # in two indexes
    assert len(begun) == 1
    assert_mirrors(PlayerRank, PlayerAscending)


@pytest.mark.parametrize("is_redis", [True, False])
def test_a_redis_that_answers_slowly_is_spared_too(
    zrank: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_redis: bool
) -> None:
    """Each answer comes in time. All of them together would hold up every save for seconds. A push that takes as long
    because of the database suspends none."""

    def slow(call: Any, *args: Any) -> Any:
        clock.advance(1.0)
        return call(*args)

    began = clock()
    waits: AbstractContextManager[None] = nullcontext()
    if is_redis:
        monkeypatch.setattr(executor, "send_request", partial(slow, executor.send_request))
    else:
        waits = connection.execute_wrapper(slow)
    with waits:
        Nickname.objects.create(nick="a", score=1)
    assert clock() >= began + 2
    assert breaker.is_any_open == is_redis
    assert_mirrors(NicknameRank)
    clock.advance(60)
    assert not breaker.is_any_open


def test_saves_that_an_unbuilt_index_refuses_are_warned_of_once(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """And again after it was built and emptied once more."""
    own_server.ask("FLUSHALL")
    for nick in "abc":
        Nickname.objects.create(nick=nick, score=1)
    (warning,) = messages(caplog, logging.WARNING)
    assert "'nickname' is not built" in warning
    rebuild(NicknameRank.instance())
    Nickname.objects.create(nick="d", score=1)
    own_server.ask("FLUSHALL")
    for nick in "ef":
        Nickname.objects.create(nick=nick, score=1)
    assert len(messages(caplog, logging.WARNING)) == 2
