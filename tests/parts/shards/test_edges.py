"""The edges of an index with shards: the API, the admin, metrics, the health view and commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, RequestFactory
from rest_framework import serializers

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.health import health
from django_zrank.models import Mark
from django_zrank.queries.request import Request
from django_zrank.registry import registry
from django_zrank.rest_framework import RecommendationViewSet
from django_zrank.rest_framework.serializers import EntrySerializer, UnrankedSerializer
from django_zrank.shards.queries import COUNT_BEFORE
from django_zrank.shards.reader import ShardedReader
from django_zrank.store import Store
from django_zrank.sync import signal_handlers
from django_zrank.sync.in_step import breaker
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import reset
from tests.parts.shards.test_sharded import forget_trust
from tests.scripts import variants
from tests.test_metrics import scrape
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


@pytest.fixture
def index(settings: Any) -> Iterator[type[RankIndex]]:
    """Players of the levels 80 to 120, in five shards. The one of the level 100 is Ada's."""
    settings.ROOT_URLCONF = "tests.urls"
    settings.ZRANK = {"CAPTURE": "signals"}  # no triggers are created for it
    index = registry.register(type("Divided", (PlayerRank,), {"name": "divided", "shards": 5}))
    signal_handlers.connect(index.instance())
    reset()
    ada = User.objects.create_superuser("ada")
    Player.objects.bulk_create(
        Player(name=f"level {level}", level=level, user=ada if level == 100 else None)
        for level in range(80, 121)
    )
    rebuild(index.instance())
    Mark.objects.all().delete()
    forget_trust(index)
    yield index
    signal_handlers.disconnect(index.instance())
    registry.unregister(index)


@pytest.fixture
def client(index: type[RankIndex], client: Client) -> Client:
    client.force_login(User.objects.get())
    return client


def test_the_api(client: Client) -> None:
    answer = client.get("/api/divided/recommendations/", {"n": 8}).json()
    assert (answer["candidates"], len(answer["results"])) == (20, 8)
    assert [result["rank"] for result in answer["results"]] == [
        121 - result["score"] for result in answer["results"]
    ]
    page = client.get("/api/divided/leaderboard/", {"page_size": 3}).json()
    assert [entry["score"] for entry in page["results"]] == [120, 119, 118]
    mine = client.get("/api/divided/leaderboard/me/").json()
    assert (mine["rank"], mine["count"], mine["percentile"]) == (21, 41, 50.0)
    some = ",".join(str(player.pk) for player in Player.objects.filter(level__in=[85, 119, 100]))
    page = client.get("/api/divided/leaderboard/", {"pk": some}).json()
    assert [(entry["score"], entry["rank"]) for entry in page["results"]] == [(119, 2), (100, 21), (85, 36)]


class Names(serializers.ModelSerializer[Player]):
    class Meta:
        model = Player
        fields = ["name"]


class UnrankedNames(Names):
    rank = None


@pytest.mark.parametrize(
    ("serializer_class", "shown", "counted"),
    [
        (EntrySerializer, {"pk", "score", "rank"}, 1),
        (UnrankedSerializer, {"pk", "score"}, 0),
        (Names, {"pk", "score", "rank", "name"}, 1),
        (UnrankedNames, {"pk", "score", "name"}, 0),
    ],
)
def test_ranks_are_counted_where_they_are_shown(
    index: type[RankIndex], serializer_class: Any, shown: set[str], counted: int, sent: list[Request[Any]]
) -> None:
    view = RecommendationViewSet.as_view({"get": "list"}, index=index, serializer_class=serializer_class)
    asked = RequestFactory().get("/", {"n": 20})
    asked.user = User.objects.get()  # type: ignore[attr-defined]
    index.ranking.count()  # which looks at the servers' health
    sent.clear()
    found = view(asked).data["results"]
    assert [set(result) for result in found] == [shown] * 20
    counting = [one for one in sent if one.calls[0].command in variants(COUNT_BEFORE)]
    assert (len(sent) - len(counting), len(counting)) == (1, counted)
    assert [result.get("rank") for result in found] == [
        121 - result["score"] if counted else None for result in found
    ]


def test_a_save_is_ranked(index: type[RankIndex]) -> None:
    best = Player.objects.create(name="new", level=500)
    assert index.ranking.rank(best) == 1
    pk = best.pk
    best.delete()
    assert pk not in index.ranking


def test_the_admin(client: Client) -> None:
    page = client.get(
        "/admin/zrank/ranking/divided/change/", {"member": Player.objects.get(level=100).pk, "n": 4}
    )
    assert page.status_code == 200
    assert [server["own"] > 0 for server in page.context["servers"]] == [True]
    assert page.context["histogram"].members == 41
    assert len(page.context["draw"]["drawn"]) == 4
    assert client.get("/admin/zrank/ranking/").status_code == 200


def test_the_admin_says_why_there_are_no_ranks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ShardedReader.send

    def refuse(reader: ShardedReader, request: Request[Any]) -> list[Any]:
        counts = [call for call in request.calls if call.command in variants(COUNT_BEFORE)]
        if counts and len(counts[0].arguments) > 9:  # not the one that asks
            raise IndexUnavailable("away for a moment")
        return send(reader, request)

    monkeypatch.setattr(ShardedReader, "send", refuse)
    asked = {"member": Player.objects.get(level=100).pk, "n": 4}
    page = client.get("/admin/zrank/ranking/divided/change/", asked)
    assert "away for a moment" in page.content.decode()


def test_metrics(index: type[RankIndex]) -> None:
    assert scrape('zrank_members{index="divided"}', 'zrank_healthy{index="divided"}') == [41, 1]


def test_one_shard_that_is_not_healthy(index: type[RankIndex], capsys: pytest.CaptureFixture[str]) -> None:
    names = [part.name for part in index.instance().holders]
    store = Store(names[3])
    store.client.hset(store.keys.meta, "behind", "1")
    unhealthy = scrape(*(f'zrank_shard_unhealthy{{index="divided",shard="{name}"}}' for name in names))
    assert unhealthy == [None, None, None, 1, None]
    call_command("zrank_status", "divided")
    assert capsys.readouterr().out.endswith(f"\ndivided: not healthy: {names[3]}\n")


def test_pushes_to_one_server_that_are_suspended() -> None:
    assert scrape("zrank_breaker_open") == [0]
    breaker.of("a node").trip(IndexUnavailable("down"))
    try:
        assert scrape("zrank_breaker_open") == [1]
    finally:
        breaker.forget()


def test_the_health_view(index: type[RankIndex]) -> None:
    asked = RequestFactory().get("/", {"index": "divided"})
    assert health(asked).status_code == 200
    store = Store(index.instance().holders[3].name)
    store.client.hset(store.keys.meta, "behind", "1")
    forget_trust(index)
    assert health(asked).status_code == 503
    assert scrape('zrank_healthy{index="divided"}') == [0]


def test_commands(index: type[RankIndex], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("zrank_status", "divided")
    assert "41" in capsys.readouterr().out
    call_command("verify_zrank", "divided")
    call_command("rebuild_zrank", "divided")
    call_command("sync_zrank", "divided")
    assert index.ranking.count() == 41
