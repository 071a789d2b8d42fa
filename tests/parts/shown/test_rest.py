"""Shown columns in responses and in their schema."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import path
from rest_framework import serializers
from rest_framework.test import APIClient

from django_zrank import RankIndex
from django_zrank.rest_framework.serializers import EntrySerializer, UnrankedSerializer
from django_zrank.testing import sync_now
from tests.rest_framework.urls import board
from tests.testapp.models import Competitor, Guild

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]


class Named(RankIndex):
    name = "named"
    model = Competitor
    order = ("-points",)
    band = 100
    shown = ("region", "guild__slug", "joined")


class Unnamed(Named):
    name = "unnamed"
    shown = ()


class Renamed(EntrySerializer):
    """As docs/rest.md shows it."""

    shown = None  # type: ignore[assignment]
    name = serializers.CharField(source="shown.region", allow_null=True)


class Region(serializers.ModelSerializer[Competitor]):
    class Meta:
        model = Competitor
        fields = ["region"]


@pytest.fixture(autouse=True)
def _urls(settings: Any) -> None:
    urlconf: Any = ModuleType("urlconf")
    urlconf.urlpatterns = [
        path("named/", board(index=Named)),
        path("unnamed/", board(index=Unnamed)),
        path("renamed/", board(index=Named, serializer_class=Renamed)),
        path("unranked/", board(index=Named, serializer_class=UnrankedSerializer)),
        path("rows/", board(index=Named, serializer_class=Region)),
    ]
    settings.ROOT_URLCONF = urlconf


@pytest.fixture
def client(db: None) -> APIClient:
    foxes = Guild.objects.create(slug="foxes")
    Competitor.objects.create(points=3, region="kantou", guild=foxes, joined="2026-01-01T00:00:00.000001Z")
    Competitor.objects.create(points=2)
    sync_now(Named)
    sync_now(Unnamed)
    client = APIClient()
    client.force_authenticate(User.objects.create_user("ada"))
    return client


FIRST = {"region": "kantou", "guild__slug": "foxes", "joined": "2026-01-01T00:00:00.000001Z"}
SECOND = {"region": None, "guild__slug": None, "joined": None}


def results(client: APIClient, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(url).json()["results"]
    return [{name: value for name, value in result.items() if name != "pk"} for result in found]


def test_results_have_what_is_shown_without_a_query(client: APIClient) -> None:
    results(client, "/named/")
    with CaptureQueriesContext(connection) as queries:
        found = results(client, "/named/")
    assert found == [{"score": 3, "rank": 1, "shown": FIRST}, {"score": 2, "rank": 2, "shown": SECOND}]
    assert [query["sql"] for query in queries if "competitor" in query["sql"]] == []


@pytest.mark.parametrize(
    ("url", "first"),
    [
        ("/unnamed/", {"score": 3, "rank": 1}),
        ("/renamed/", {"score": 3, "rank": 1, "name": "kantou"}),
        ("/unranked/", {"score": 3, "shown": FIRST}),
        ("/rows/", {"score": 3, "rank": 1, "region": "kantou"}),
    ],
)
def test_other_serializers(client: APIClient, url: str, first: dict[str, Any]) -> None:
    assert results(client, url)[0] == first


def test_one_member_and_those_around_it(client: APIClient) -> None:
    pk = Competitor.objects.get(points=3).pk
    assert client.get(f"/named/{pk}/").json()["shown"] == FIRST
    around = client.get(f"/named/{pk}/around/").json()["results"]
    assert [result["shown"] for result in around] == [FIRST, SECOND]


def test_the_schema(client: APIClient, settings: Any) -> None:
    pytest.importorskip("drf_spectacular")
    from tests.rest_framework.schemas import generate

    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    schema = generate()
    for url in ("named", "unnamed", "renamed", "unranked", "rows"):
        schema.validate(f"/{url}/", client.get(f"/{url}/").json())
    shown = schema.components["NamedEntry"]["properties"]["shown"]
    assert shown["required"] == ["region", "guild__slug", "joined"]
    assert shown["properties"]["joined"] == {"type": "string", "format": "date-time", "nullable": True}
    assert "shown" in schema.components["NamedEntry"]["required"]
    for name in ("UnnamedEntry", "NamedRenamed"):
        assert "shown" not in schema.components[name]["properties"]
