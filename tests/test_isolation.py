"""Tests use no Redis but one of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import unittest
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import SimpleTestCase, TestCase, override_settings
from redis import Redis

from django_zrank import IndexUnavailable, embedded
from django_zrank.exceptions import NotIsolated
from django_zrank.models import Build
from django_zrank.redis import isolation
from django_zrank.testing import ZRankTestMixin, own_redis, reset, sync_now
from tests.keyspace import whole
from tests.projects import ROOT, is_closed
from tests.servers import free_port, wait_for
from tests.sync.mirror import contents
from tests.testapp.models import Nickname
from tests.testapp.zrank import NicknameRank, PlayerRank


def test_without_the_fixture_every_use_of_redis_is_refused() -> None:
    with pytest.raises(NotIsolated, match=r"CACHES\['zrank'\].*ZRANK\['TEST_LOCATION'\]"):
        PlayerRank.ranking.count()
    assert issubclass(NotIsolated, IndexUnavailable)


@pytest.mark.parametrize("call", [sync_now, reset])
def test_what_is_for_tests_is_refused_too(call: Callable[[], None]) -> None:
    with pytest.raises(NotIsolated, match="TEST_LOCATION"):
        call()


@pytest.fixture
def noted(zrank_server: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings name the server of the session, as if they had when the process started."""
    cache = {**settings.CACHES["zrank"], "LOCATION": zrank_server.url}
    settings.CACHES = {**settings.CACHES, "zrank": cache}
    monkeypatch.setattr(isolation, "_project", set())
    isolation.note_project()


def test_the_fixture_refuses_the_redis_of_the_settings(noted: None, request: pytest.FixtureRequest) -> None:
    with pytest.raises(NotIsolated, match="TEST_LOCATION"):
        request.getfixturevalue("zrank")


def test_the_same_server_by_another_name_is_no_other(noted: None, settings: Any) -> None:
    cache = settings.CACHES["zrank"]
    location = cache["LOCATION"].replace("127.0.0.1", "localhost").removesuffix("/0")
    settings.CACHES = {**settings.CACHES, "zrank": {**cache, "LOCATION": location}}
    with pytest.raises(NotIsolated):
        PlayerRank.ranking.store.client.ping()


@pytest.mark.parametrize("name", ["prefix", "database", "location"])
def test_a_redis_of_a_tests_own(noted: None, settings: Any, name: str) -> None:
    cache = settings.CACHES["zrank"]
    if name == "prefix":
        settings.ZRANK = {"KEY_PREFIX": "tests"}
    elif name == "location":
        settings.ZRANK = {"TEST_LOCATION": cache["LOCATION"]}
    else:
        cache = {**cache, "LOCATION": cache["LOCATION"].removesuffix("/0") + "/1"}
        settings.CACHES = {**settings.CACHES, "zrank": cache}
    assert PlayerRank.ranking.store.client.ping()
    reset()
    assert PlayerRank.ranking.count() == 0
    PlayerRank.ranking.store.client.flushdb()


@pytest.mark.parametrize(
    "location", ["unix:///run/redis.sock?db=1", ["redis://a/0", "redis://b/0"], "redis://a:1,b:2/0"]
)
def test_any_location_can_be_the_projects(
    location: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "LOCATION": location}}
    assert isolation.is_isolated()
    monkeypatch.setattr(isolation, "_project", set())
    isolation.note_project()
    assert not isolation.is_isolated()


def test_without_the_cache_nothing_is_pushed(settings: Any) -> None:
    """Tests often override CACHES, and forget others than the default."""
    settings.CACHES = {"default": settings.CACHES["default"]}
    assert not isolation.may_use_redis()


def test_options_of_the_projects_server_are_not_its_own(settings: Any) -> None:
    """A password, say, or Sentinels: the embedded server has none."""
    options = {
        "PASSWORD": "secret",
        "SOCKET_TIMEOUT": 3,
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
    }
    settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "OPTIONS": options}}
    with own_redis() as client:
        assert client.ping()
        # Not of the pool: django-redis keeps that of a former test's, by its URL.
        assert settings.CACHES["zrank"]["OPTIONS"] == {
            "SOCKET_TIMEOUT": 3,
            "CONNECTION_FACTORY": "django_redis.pool.ConnectionFactory",
        }
        reset()
        assert PlayerRank.ranking.count() == 0
    with pytest.raises(NotIsolated):
        PlayerRank.ranking.count()


def test_a_mixin_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="before the test case"):
        type("Wrong", (TestCase, ZRankTestMixin), {})


def test_a_redis_that_a_test_sets_by_itself_is_not_emptied(zrank_server: Any) -> None:
    other = zrank_server.url.removesuffix("/0") + "/7"

    class Overridden(ZRankTestMixin, SimpleTestCase):
        def test(self) -> None:
            raise AssertionError

    caches = {"zrank": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": other}}
    with Redis.from_url(other) as client:
        client.set("kept", "1")
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(override_settings(CACHES=caches)(Overridden)).run(
            result
        )
        assert not result.failures
        ((_, report),) = result.errors
        assert "NotIsolated: A test sets CACHES['zrank'] to another server" in report
        assert client.get("kept") == b"1"
        client.flushdb()


class TestSkipped(ZRankTestMixin, SimpleTestCase):
    @pytest.mark.skip(reason="nothing is prepared")
    def test_by_pytest(self) -> None:
        raise AssertionError

    @unittest.skip("nothing is prepared")
    def test_by_unittest(self) -> None:
        raise AssertionError


# What manage.py check says


def warnings() -> list[str | None]:
    return [
        message.id for message in run_checks(tags=["zrank"]) if message.id in ("zrank.W020", "zrank.W021")
    ]


def test_a_run_of_tests_without_a_redis_is_told_so(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_offered", False)
    assert warnings() == ["zrank.W021"]
    settings.ZRANK = {"AUTO_SYNC": False}
    assert warnings() == []
    settings.ZRANK = {}
    with own_redis():
        assert warnings() == []
    isolation.offer()
    assert warnings() == []


def test_a_thread_that_imports_what_tests_set_up_disturbs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halfway, that module has nothing in it yet."""
    assert isolation.is_testing()
    monkeypatch.setitem(sys.modules, "django.test.utils", ModuleType("django.test.utils"))
    assert not isolation.is_testing()


def test_a_site_that_gives_its_redis_to_tests_is_told_so(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = settings.CACHES["zrank"]["LOCATION"]
    monkeypatch.setattr("django_zrank.checks.is_testing", lambda: False)
    assert warnings() == []
    settings.ZRANK = {"TEST_LOCATION": location}
    assert warnings() == ["zrank.W020"]
    settings.ZRANK = {"TEST_LOCATION": location.removesuffix("/0") + "/9"}
    assert warnings() == []


# The embedded server


def test_a_server_ends_with_a_process_that_is_killed() -> None:
    code = (
        "from django_zrank.embedded import EmbeddedServer\n"
        "print(EmbeddedServer().start().url, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":")[-1].split("/")[0])
        assert not is_closed(port)
        process.kill()
    wait_for(lambda: is_closed(port))


def serve(*arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "django_zrank.embedded", *arguments]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_server_is_served_by_a_command_until_a_signal(signum: signal.Signals) -> None:
    port = free_port()
    with serve(str(port)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"redis://127.0.0.1:{port}/0\n"
        assert not is_closed(port)
        if signum == signal.SIGINT:
            with serve(str(port)) as second:
                taken = f"Port {port} is already in use on 127.0.0.1\n"
                assert second.communicate(timeout=30) == ("", taken)
        process.send_signal(signum)
        assert process.wait(timeout=30) == 0
    assert is_closed(port)


@pytest.mark.parametrize("arguments", [(), ("x",), ("0",), ("65536",), ("6399", "6400")])
def test_the_command_of_a_server_takes_a_port(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["embedded.py", *arguments])
    with pytest.raises(SystemExit, match=r"^usage: python -m django_zrank\.embedded PORT$"):
        embedded.main()


# A database that is not the one that Redis mirrors


@pytest.fixture(params=["no build", "another build"])
def unknown(zrank: Any, db: None, request: pytest.FixtureRequest) -> Any:
    """The Redis of a site, seen from a staging system with the same URL: its database knows nothing of the build."""
    noted = Build.objects.all()
    noted.delete() if request.param == "no build" else noted.update(build="staging")
    return zrank


def test_what_another_database_commits_does_not_reach_redis(unknown: Any) -> None:
    before = whole(unknown)
    with TestCase.captureOnCommitCallbacks(execute=True):
        Nickname.objects.create(nick="a", score=1)
    assert contents(NicknameRank) == {}
    assert whole(unknown) == before
