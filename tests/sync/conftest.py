"""Fixtures of the sync tests: round trips, time, a second connection, a server of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.dispatch import Signal
from redis import Redis

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import Mark
from django_zrank.queries.request import Request
from django_zrank.redis import executor
from django_zrank.redis.scripts import Script
from django_zrank.registry import registry
from django_zrank.signals import rebuilt
from django_zrank.store import Store
from django_zrank.sync import marks, signal_handlers
from django_zrank.sync.in_step import breaker
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import reset
from tests.servers import RedisServer
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, saves ask for the newest marks."""
    monkeypatch.setattr(marks, "_SLOW", 60.0)
    marks._slow.clear()
    marks._unasked.clear()
    triggers._examined.clear()
    signal_handlers._helped.clear()


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the script of each round trip from now on, tried or made. One for several indexes counts once."""
    sent: list[str] = []
    send_request = executor.send_request

    def record(client: Any, request: Request) -> list[Any]:
        sent.extend({call.command.name for call in request.calls if isinstance(call.command, Script)})
        return send_request(client, request)

    monkeypatch.setattr(executor, "send_request", record)
    return sent


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The pushes from now on: the index, and its members with their scores."""
    pushed: list[tuple[str, dict[str, Any]]] = []
    applying_changes = Store.applying_changes

    def record(store: Store, epoch: Any, changes: Any, **how: Any) -> Any:
        changes = list(changes)
        pushed.append((store.name, {member: score for member, score, _ in changes}))
        return applying_changes(store, epoch, changes, **how)

    monkeypatch.setattr(Store, "applying_changes", record)
    return pushed


@pytest.fixture
def undrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave marks alone, which would repair what a push has missed: pushes are tested for themselves."""
    monkeypatch.setattr(signal_handlers, "drain_soon", lambda index: None)


@pytest.fixture
def declare(zrank: Redis) -> Iterator[Callable[..., type[RankIndex]]]:
    """Registers an index for this test, connected and built: a model, an order, other attributes."""
    declared: list[type[RankIndex]] = []

    def add(model: Any, order: str, **attributes: Any) -> type[RankIndex]:
        attributes = {"model": model, "order": (order,), "name": f"declared-{len(declared)}", **attributes}
        index = registry.register(type("Declared", (RankIndex,), attributes))
        declared.append(index)
        signal_handlers.connect(index.instance())
        reset()
        return index

    yield add
    for index in declared:
        signal_handlers.disconnect(index.instance())
        registry.unregister(index)
        triggers.drop(index.instance().get_using(), [index.instance().name])  # what sync() put in place


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def rank_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., type[RankIndex]]]:
    """Executes statements that make tables, or what looks like one, and ranks the rows of the one called ``name`` by
    ``score``; no other index is registered."""
    models_before = set(apps.all_models["testapp"])
    tables_before = tables()

    def make(*statements: str, name: str = "watched") -> type[RankIndex]:
        execute(*statements)
        meta = type("Meta", (), {"app_label": "testapp", "db_table": name, "managed": False})
        fields = {"id": models.IntegerField(primary_key=True), "score": models.IntegerField(null=True)}
        model = type(f"Ranked_{name}", (models.Model,), {**fields, "Meta": meta, "__module__": __name__})
        index = type("WatchedRank", (RankIndex,), {"name": "watched", "model": model, "order": ("-score",)})
        monkeypatch.setattr(registry, "_classes", {index: None})
        return index

    yield make
    triggers.drop("default", ["watched"])
    cascade = "CASCADE" if connection.vendor == "postgresql" else ""
    for name, kind in tables() - tables_before:
        execute(f"DROP {'VIEW' if kind == 'v' else 'TABLE'} IF EXISTS {name} {cascade}")
    for name in apps.all_models["testapp"].keys() - models_before:
        del apps.all_models["testapp"][name]
    monkeypatch.undo()
    Mark.objects.all().delete()


def tables() -> set[tuple[str, str]]:
    """The name and the kind of each table and view."""
    with connection.cursor() as cursor:
        return {(table.name, table.type) for table in connection.introspection.get_table_list(cursor)}


@pytest.fixture
def ten_players(zrank: Redis) -> None:
    """Ten players, and an index built of them."""
    Player.objects.bulk_create([Player(level=level) for level in range(10)])
    Mark.objects.all().delete()
    rebuild(PlayerAscending.instance())


def change_all(level: int) -> None:
    """Change all ten players by ``update()``, which only marks tell of."""
    assert Player.objects.update(level=level) == 10


@pytest.fixture
def hear() -> Iterator[Callable[..., list[Any]]]:
    """Begins to listen to a signal. Returns a list of what it tells from now on: the arguments of these names."""
    listening: list[tuple[Signal, Callable[..., None]]] = []

    def listen(signal: Signal, *names: str) -> list[Any]:
        heard: list[Any] = []

        def receive(**told: Any) -> None:
            heard.append(tuple(told[name] for name in names) if len(names) > 1 else told[names[0]])

        signal.connect(receive)
        listening.append((signal, receive))
        return heard

    yield listen
    for signal, receive in listening:
        signal.disconnect(receive)


@pytest.fixture
def rebuilds(hear: Callable[..., list[Any]]) -> list[RankIndex]:
    """The indexes that are rebuilt from now on."""
    return hear(rebuilt, "sender")


@pytest.fixture
def isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """The isolation level, given by its name, of all connections that are opened from now on."""
    level: Any = request.param.lower().replace("_", " ")
    if connection.vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        level = getattr(IsolationLevel, request.param)
    options = connection.settings_dict["OPTIONS"]
    before = dict(options)
    options["isolation_level"] = level
    connection.close()
    yield
    options.clear()
    options.update(before)
    connection.close()


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The breaker's clock. The breaker is closed before and after."""
    breaker.forget()
    clock = Clock()
    monkeypatch.setattr("django_zrank.sync.in_step.monotonic", clock)
    yield clock
    breaker.forget()


@pytest.fixture
def own_server(zrank: Redis, settings: Any) -> Iterator[RedisServer]:
    """A server like that of the session, for one test to stop. Every index is built and empty in it."""
    executable: str = zrank.info("server")["executable"]
    with RedisServer(executable) as server:
        use_redis(settings, server.url)
        reset()
        yield server
    breaker.forget()


def use_redis(settings: Any, url: str, **options: Any) -> None:
    """Keep the indexes at ``url``."""
    cache = settings.CACHES["zrank"]
    changed = {**cache, "LOCATION": url, "OPTIONS": {**cache["OPTIONS"], **options}}
    settings.CACHES = {**settings.CACHES, "zrank": changed}


def refused_within(seconds: float, index: type[RankIndex], error: type[IndexUnavailable]) -> bool:
    """Return True if reads, tried again and again, are turned away before the time is up."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        try:
            index.ranking.top(3)
        except error:
            return True
        sleep(0.02)
    return False
