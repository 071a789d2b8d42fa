"""Metrics, the health view and zrank_status: the state of the indexes for machines and for people."""

from __future__ import annotations

import json
import os
import signal
from io import StringIO
from threading import Thread
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import InterfaceError, connections
from django.test import Client
from django.urls import path
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from redis import Redis

from django_zrank.exceptions import IndexUnavailable
from django_zrank.health import health
from django_zrank.metrics import Collector, _counts
from django_zrank.models import Mark
from django_zrank.signals import drift_found, push_failed, repaired
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status
from django_zrank.sync.rebuild import rebuild
from tests.servers import RedisServer, free_port
from tests.sync.conftest import use_redis
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("built"),
]

INDEX = PlayerAscending.instance()

urlpatterns = [path("health/", health)]


@pytest.fixture
def built(zrank: Redis) -> None:
    Mark.objects.all().delete()
    rebuild(INDEX)
    _counts.clear()
    PlayerAscending.ranking._reader.trust.until = 0.0


@pytest.fixture
def away(built: None, settings: Any) -> None:
    use_redis(settings, f"redis://127.0.0.1:{free_port()}/0")
    PlayerAscending.ranking._reader.trust.until = 0.0


def scrape(*samples: str) -> list[float | None]:
    """The values of samples at one time, as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(Collector())
    lines = [line.rpartition(" ") for line in generate_latest(registry).decode().splitlines()]
    assert generate_openmetrics(registry).endswith(b"# EOF\n")
    values = {name: float(value) for name, _, value in lines if name and not name.startswith("#")}
    return [values.get(sample) for sample in samples]


def test_gauges() -> None:
    Player.objects.bulk_create([Player(level=1), Player(level=2)])
    waiting, members = 'zrank_waiting_marks{index="ascending"}', 'zrank_members{index="ascending"}'
    assert scrape(waiting, members) == [2, 0]
    drain(INDEX)
    assert scrape(waiting, members, 'zrank_drained_marks_total{index="ascending"}') == [0, 2, 2]
    assert scrape(
        'zrank_healthy{index="ascending"}',
        'zrank_up{index="ascending"}',
        'zrank_status{index="ascending",status="HEALTHY"}',
        'zrank_status{index="ascending",status="EVICTED"}',
        "zrank_breaker_open",
    ) == [1, 1, 1, 0, 0]


def test_a_backlog_is_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_zrank.sync.gauges.MOST_WAITING", 3)
    Mark.objects.bulk_create(Mark(index=INDEX.name, member=str(member)) for member in range(5))
    assert scrape('zrank_waiting_marks{index="ascending"}') == [3]


def test_counts() -> None:
    push_failed.send(INDEX, error=IndexUnavailable(), members={"1"})
    drift_found.send(INDEX, missing=1, extra=0, different=3)
    repaired.send(INDEX, status=Status.WRITES_LOST)
    rebuild(INDEX)
    assert scrape(
        'zrank_pushes_failed_total{index="ascending"}',
        'zrank_drift_total{index="ascending",kind="different"}',
        'zrank_repairs_total{index="ascending",status="WRITES_LOST"}',
        'zrank_rebuilds_total{index="ascending"}',
    ) == [1, 3, 1, 1]


def test_nothing_is_asked_when_the_collector_is_registered(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        CollectorRegistry(auto_describe=True).register(Collector())


@pytest.mark.usefixtures("away")
def test_metrics_without_redis() -> None:
    names = ("up", "members", "waiting_marks")
    assert scrape(*(f'zrank_{name}{{index="ascending"}}' for name in names)) == [0, None, 0]


def test_metrics_without_the_database() -> None:
    with mock.patch(
        "django_zrank.metrics.read_gauges", side_effect=InterfaceError("connection already closed")
    ):
        assert scrape('zrank_up{index="ascending"}') == [0]


def test_a_scrape_of_another_thread_leaves_no_connection() -> None:
    left: list[Any] = []

    def run() -> None:
        assert scrape('zrank_up{index="ascending"}') == [1]
        left.extend(one.connection for one in connections.all(initialized_only=True))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert left
    assert not any(left)


# The health view


@pytest.fixture
def client(client: Client, settings: Any) -> Client:
    settings.ROOT_URLCONF = __name__
    return client


def test_healthy(client: Client) -> None:
    response = client.get("/health/", {"index": "ascending"})
    assert (response.status_code, response.json()) == (200, {"indexes": {"ascending": "ok"}})
    assert "no-cache" in response["Cache-Control"]
    assert client.get("/health/", {"index": "nobody"}).status_code == 404
    assert client.post("/health/").status_code == 405
    with mock.patch("django_zrank.health._state", return_value="ok") as asked:
        client.get("/health/", {"index": ["ascending"] * 100})
    assert asked.call_count == 1


@pytest.mark.parametrize(
    ("unhealthy", "status", "state"),
    [
        ("raise", 503, "IndexUnavailable"),
        pytest.param("database", 200, "by SQL", marks=pytest.mark.part("sql")),
    ],
)
@pytest.mark.usefixtures("away")
def test_unhealthy(client: Client, settings: Any, unhealthy: str, status: int, state: str) -> None:
    settings.ZRANK = {"UNHEALTHY": unhealthy}
    response = client.get("/health/", {"index": "ascending"})
    assert (response.status_code, response.json()) == (status, {"indexes": {"ascending": state}})


def test_it_waits_once_while_redis_hangs(client: Client, zrank: Redis, settings: Any) -> None:
    binary: Any = zrank.info("server")["executable"]
    with RedisServer(binary) as server:
        use_redis(settings, server.url, SOCKET_TIMEOUT=1.2, SOCKET_CONNECT_TIMEOUT=1.2)
        os.kill(server.ask("INFO", "server")["process_id"], signal.SIGSTOP)
        try:
            response = client.get("/health/")
        finally:
            server.kill()
    assert response.status_code == 503
    first, *others = response.json()["indexes"].values()
    assert first == "IndexUnavailable"
    assert len(others) > 5
    assert set(others) == {"not asked"}


def test_an_index_that_is_not_built(client: Client, zrank: Redis) -> None:
    zrank.flushall()
    assert client.get("/health/").status_code == 503
    assert client.get("/health/").json()["indexes"]["ascending"] == "NotBuilt"
    assert scrape('zrank_status{index="ascending",status="EMPTY"}') == [1]


# zrank_status


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("zrank_status", *arguments, stdout=out)
    return out.getvalue()


def test_status() -> None:
    head, line = said("ascending").splitlines()
    assert head.split()[:4] == ["index", "status", "members", "waiting"]
    assert "pending lag" in head
    assert line.split()[:4] == ["ascending", "HEALTHY", "0", "0"]
    assert len(said().splitlines()) > 5
    state = json.loads(said("ascending", "--json"))["ascending"]
    assert (state["status"], state["members"], state["waiting"]) == ("HEALTHY", 0, 0)
    assert state["build"].startswith(INDEX.declaration)
    assert json.loads(said("ascending", "--json", "--verbosity=0"))["ascending"]["status"] == "HEALTHY"
    assert said("ascending", "--verbosity=0") == ""


@pytest.mark.usefixtures("away")
def test_status_without_redis() -> None:
    assert "UNREACHABLE" in said("ascending")
    assert json.loads(said("ascending", "--json"))["ascending"]["status"] is None
