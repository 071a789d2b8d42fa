"""The schema that drf-spectacular makes of the views, and whether the answers keep to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from django.core.management import call_command
from django.urls import path as url_path
from drf_spectacular.management.commands.spectacular import Command
from drf_spectacular.openapi import AutoSchema
from rest_framework.test import APIClient

from django_zrank.registry import Registry, registry
from django_zrank.rest_framework import urls, viewsets
from django_zrank.testing import sync_now
from tests.rest_framework.schemas import Schema, generate
from tests.rest_framework.urls import Regional, Tied, board
from tests.testapp.models import Player
from tests.testapp.zrank import ByDay, BySpan, CompetitorRank, PlayerRank


class Shouting(AutoSchema):
    """A project's own schema class."""

    def get_description(self) -> str:
        return super().get_description().upper()


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _spectacular(settings: Any) -> None:
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    settings.ROOT_URLCONF = "tests.rest_framework.openapi_urls"


_schemas: list[Schema] = []


@pytest.fixture
def schema(caplog: pytest.LogCaptureFixture) -> Schema:
    """The schema of all paths, generated once, as it takes seconds. Nothing is logged about paths without an index."""
    if not _schemas:
        viewsets._warn.cache_clear()
        _schemas.append(generate())
        assert "DEFAULT_INDEX" not in caplog.text
    return _schemas[0]


PATHS = {
    "list": "/own/board/",
    "retrieve": "/own/board/{id}/",
    "me": "/own/board/me/",
    "around": "/own/board/{id}/around/",
    "gap": "/own/board/{id}/gap/",
    "counts": "/own/board/counts/",
    "draw": "/own/opponents/",
}


def serve_only(settings: Any, monkeypatch: Any, *indexes: Any) -> None:
    """Serve the app's own paths to these indexes and to no other."""
    some = Registry()
    for index in indexes:
        some.register(index)
    for module in ("viewsets", "openapi", "urls"):
        monkeypatch.setattr(f"django_zrank.rest_framework.{module}.registry", some)
    settings.ZRANK = {}
    urlconf = ModuleType("urlconf")
    monkeypatch.setattr(urlconf, "urlpatterns", urls.get_urls(), raising=False)
    settings.ROOT_URLCONF = urlconf


def test_every_path_is_described(schema: Schema) -> None:
    short = {"/api/recommendations/", "/api/leaderboard/", "/api/leaderboard/me/"}
    short |= {"/api/leaderboard/{id}/", "/api/leaderboard/{id}/around/", "/api/leaderboard/{id}/gap/"}
    assert short <= schema.paths.keys()
    for index in registry.all():
        assert {path.replace("/api/", f"/api/{index.name}/") for path in short} <= schema.paths.keys()
        counts = f"/api/{index.name}/leaderboard/counts/"
        assert (counts in schema.paths) is bool(index.faceting)
    assert "/api/leaderboard/counts/" not in schema.paths  # The index has no facet
    assert not [path for path in schema.paths if path.startswith("/api/{index}")]
    assert set(PATHS.values()) <= schema.paths.keys()
    for path, methods in schema.paths.items():
        assert list(methods) == ["get"]
        operation = methods["get"]
        assert set(operation["responses"]) == {"200", "400", "401", "403", "404", "503"}, path
        assert operation["description"]
        assert operation["responses"]["503"]["headers"]["Retry-After"]["schema"] == {"type": "integer"}
    identifiers = [methods["get"]["operationId"] for methods in schema.paths.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_parameters(schema: Schema) -> None:
    common = {"region", "region__not", "region__isnull", "active", "active__not", "active__isnull"}
    common |= {"region__isempty", "user", "user__not", "user__isnull", "group", "group__not"}
    assert schema.parameters(PATHS["list"]).keys() == common | {"page", "page_size", "pk"}
    assert schema.parameters(PATHS["retrieve"]).keys() == common | {"id", "in"}
    assert schema.parameters(PATHS["me"]).keys() == common | {"member", "in"}
    assert schema.parameters(PATHS["around"]).keys() == common | {"id", "n", "after", "before"}
    assert schema.parameters(PATHS["gap"]).keys() == common | {"id"}
    assert schema.parameters(PATHS["counts"]).keys() == common | {"facet", "n"}
    draw = {"n", "band", "ranks", "widen", "exclude", "member"}
    assert schema.parameters("/api/recommendations/").keys() == draw
    assert schema.parameters(PATHS["draw"]).keys() == draw | {"search"}
    own = {"bio", "bio__not", "bio__isnull", "is_active", "is_active__not", "is_active__isnull"}
    own |= {"bio__isempty", "user", "user__not", "user__isnull", "group", "group__not"}
    assert schema.parameters("/own/linked/").keys() == draw | own | {"seed"}


def test_types(schema: Schema) -> None:
    found = schema.parameters(PATHS["counts"])
    several = {"type": "array", "minItems": 1, "maxItems": 100}
    assert found["region"]["schema"] == {
        **several,
        "items": {"type": "string", "pattern": "^[^\\u0000]*$"},
    }
    empty = {"type": "string", "enum": [""]}  # is ignored
    assert found["active"]["schema"] == {**several, "items": {"anyOf": [{"type": "boolean"}, empty]}}
    assert found["user__not"]["schema"] == {**several, "items": {"anyOf": [{"type": "integer"}, empty]}}
    assert found["user__isnull"]["schema"] == {"anyOf": [{"type": "boolean"}, empty]}
    assert empty in found["group"]["schema"]["items"]["anyOf"]
    assert found["facet"]["required"] is True
    assert schema.parameters(PATHS["me"])["in"]["schema"]["items"]["enum"] == ["region", "active", "user"]
    assert found["facet"]["schema"]["enum"] == ["region", "active", "user", "region,active"]
    assert found["n"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 500}
    assert all(one["description"] for one in found.values())
    assert schema.parameters(PATHS["retrieve"])["id"]["schema"] == {"type": "integer"}
    assert schema.parameters("/own/kwarg/{player}/")["player"]["schema"] == {"type": "integer"}
    assert schema.parameters("/own/name/{name}/")["name"]["schema"]["type"] == "string"
    for name in ("around", "gap"):
        assert {"type": "string", "enum": ["me"]} in schema.parameters(PATHS[name])["id"]["schema"]["anyOf"]
    components = schema.components
    assert components["RegionalEntry"]["properties"]["score"]["type"] == "integer"
    assert components["TicketDayEntry"]["properties"]["score"]["format"] == "date"


@pytest.mark.parametrize(
    ("index", "score", "band"),
    [
        (ByDay, {"type": "string", "format": "date"}, "P3D,P7D"),
        (BySpan, {"type": "string", "description": "Seconds.", "example": "90.0"}, "P3D,P7D"),
        (PlayerRank, {"type": "integer"}, "50,100"),
    ],
)
def test_types_of_the_only_index(settings: Any, monkeypatch: Any, index: Any, score: Any, band: str) -> None:
    serve_only(settings, monkeypatch, index)
    schema = generate()
    name = "".join(word.capitalize() for word in index.instance().name.split("-"))
    entry = schema.components[f"{name}Entry"]["properties"]
    assert entry["score"] == {**score, "readOnly": True}
    assert schema.parameters("/recommendations/")["band"]["schema"]["example"] == band
    sides = schema.content("/recommendations/")["schema"]["properties"]["band"]["items"]
    assert jsonschema.Draft202012Validator(sides).is_valid(50)  # by ?ranks=50
    assert (
        schema.parameters(f"/{index.instance().name}/recommendations/").keys()
        == schema.parameters("/recommendations/").keys()
    )


@pytest.mark.parametrize("indexes", [[], [PlayerRank, ByDay, Regional]])
def test_without_a_default_index(settings: Any, monkeypatch: Any, indexes: list[Any]) -> None:
    serve_only(settings, monkeypatch, *indexes)
    schema = generate()
    assert {path.split("/")[1] for path in schema.paths} == {index.instance().name for index in indexes}


def test_an_index_that_the_path_names(schema: Schema) -> None:
    """In paths of the project: types that differ are alternatives, filters name the indexes that have them."""
    listed, counts = (schema.parameters(f"/any/{{index}}/board/{path}") for path in ("", "counts/"))
    assert listed["index"]["schema"]["enum"] == [index.name for index in registry.all()]
    assert listed["region"]["description"].endswith("(competitors)")
    facets = [",".join(facet.paths) for facet in CompetitorRank.instance().faceting.all]
    assert counts["facet"]["schema"]["enum"] == facets
    assert schema.parameters("/any/{index}/draw/")["band"]["schema"]["anyOf"]
    pages = schema.content("/any/{index}/board/")["schema"]["properties"]["results"]["items"]["anyOf"]
    entries = {f"#/components/schemas/{name}Entry" for name in ("Player", "TicketDay")}
    assert entries <= {each["$ref"] for each in pages}


def test_a_rank_that_is_left_out(schema: Schema) -> None:
    components = schema.components
    assert components["PlayerUnranked"]["properties"].keys() == {"pk", "score"}
    both = components["PlayerUnrankedWithUnranked"]
    assert both["properties"].keys() == {"pk", "score", "name", "asked_at"}
    assert both["required"] == ["asked_at", "pk", "score"]


def test_answers_keep_to_it(schema: Schema, client: APIClient, regions: list[Player], user: Any) -> None:
    sync_now(Tied)
    for path, query in (
        (PATHS["list"], {"page_size": 3}),
        (PATHS["retrieve"], {}),
        (PATHS["me"], {"region": "kantou"}),
        (PATHS["me"], {"in": "region,active,user"}),
        (PATHS["retrieve"], {"in": "user"}),
        (PATHS["around"], {"n": 3}),
        (PATHS["around"], {"n": 300}),
        (PATHS["gap"], {}),
        ("/own/values/{id}/gap/", {}),
        (PATHS["counts"], {"facet": "user"}),
        (PATHS["counts"], {"facet": "region,active"}),
        (PATHS["list"], {"pk": f"{regions[0].pk},{regions[5].pk}"}),
        (PATHS["draw"], {}),
        ("/own/linked/", {"bio": "kantou", "seed": 7}),
        ("/own/same-names/", {}),
        ("/own/unranked/", {}),
        ("/own/unranked-rows/", {}),
        ("/own/offset/", {}),
        ("/own/values/", {"bio": "kantou"}),
        ("/api/leaderboard/", {"page": 1}),
        ("/any/{index}/board/me/", {}),
        ("/api/player/leaderboard/me/", {}),
    ):
        url = path.replace("{id}", str(regions[3].pk)).replace("{index}", "player")
        response = client.get(url, query)
        assert response.status_code == 200, (url, response.content)
        schema.validate(path, response.json())
        if "n" in schema.parameters(path):
            response = client.get(url, {**query, "n": 0})
            assert response.status_code == 400
            schema.validate(path, response.json(), "400")
        schema.validate(path, APIClient().get(url).json(), "403")


def test_a_check_that_can_fail(schema: Schema) -> None:
    good = {"pk": 1, "score": 2, "rank": 3, "name": "ada", "asked_at": "/", "count": 9, "percentile": 75.0}
    schema.validate(PATHS["me"], good)
    for bad in ({"rank": "first"}, {"score": "2"}, {"name": 5}, {"count": None}, {"percentile": 101}):
        with pytest.raises(jsonschema.ValidationError):
            schema.validate(PATHS["me"], good | bad)
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(PATHS["me"], {"pk": 1, "score": 2})


def test_codes_of_errors_are_documented(schema: Schema) -> None:
    """The schema names each code that docs/rest-reference.md lists, except those that REST framework has everywhere."""
    table = (ROOT / "docs" / "rest-reference.md").read_text()
    table = table[table.index("| code | status |") : table.index("## Headers")]
    responses = schema.paths["/api/recommendations/"]["get"]["responses"]
    codes = {
        code
        for one in responses.values()
        for code in one["description"].rpartition(": ")[2].split(", ")
        if code
    }
    assert {"ambiguous_member", "filter_too_large", "not_ranked", "index_unavailable"} <= codes
    assert not [code for code in {*codes, "key_reused", "throttled"} if f"`{code}`" not in table]


def test_what_the_project_says_itself(schema: Schema) -> None:
    listed, mine = (schema.paths[f"/own/annotated/{path}"]["get"] for path in ("", "me/"))
    assert listed["tags"] == mine["tags"] == ["mine"]
    assert listed["summary"] == "The best of all"
    assert "summary" not in mine
    assert schema.parameters("/own/annotated/").keys() == schema.parameters("/own/board/").keys()
    assert schema.content("/own/annotated/") == schema.content("/own/board/")


def test_a_schema_class_of_the_project(settings: Any, monkeypatch: Any) -> None:
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "tests.rest_framework.test_openapi.Shouting"}
    serve_only(settings, monkeypatch, Regional)
    paths = generate().paths
    assert len(paths) == 14  # Seven with the index's name, seven without
    assert all(methods["get"]["description"].isupper() for methods in paths.values())


def test_it_works_without(tmp_path: Path) -> None:
    """The views can be imported, and asked for their schema, where drf-spectacular is not installed."""
    (tmp_path / "drf_spectacular.py").write_text("raise ImportError('not installed')")
    program = (
        "import django; django.setup()\n"
        "from django_zrank.rest_framework import urls, viewsets\n"
        "viewsets.LeaderboardViewSet.schema, viewsets.LeaderboardViewSet().schema\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": ""},
    )


@pytest.mark.slow
def test_the_example_project(tmp_path: Path) -> None:
    written = tmp_path / "schema.json"
    command = "spectacular --validate --fail-on-warn --format openapi-json --file"
    subprocess.run(
        [sys.executable, "manage.py", *command.split(), str(written)],
        check=True,
        cwd=ROOT / "example_project",
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ARENA_VAR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "arena.settings",
        },
    )
    schema = Schema(written.read_text())
    region = schema.parameters("/api/recommendations/")["region"]["schema"]
    assert "kanto" in region["items"]["enum"]
    for path, operation in schema.paths.items():
        if path.startswith("/api/atp"):  # Whose facet is the country
            assert "country" in schema.parameters(path)
            assert "region" not in json.dumps(operation)


def test_descriptions_name_nobody_elses_facets(schema: Schema) -> None:
    assert "kantou" not in json.dumps([schema.paths, schema.components])
    assert "region" not in json.dumps({path: one for path, one in schema.paths.items() if "/player/" in path})


def test_facets_called_like_parameters(schema: Schema) -> None:
    assert {"facet_band", "facet_band__not", "facet_facet_page", "facet_page", "page"} <= schema.parameters(
        "/musicians/"
    ).keys()


def test_choices(schema: Schema) -> None:
    assert schema.parameters("/musicians/")["genre"]["schema"]["items"] == {
        "type": "string",
        "enum": ["pop", "rock", ""],
    }
    shown = schema.content("/musicians/counts/")["schema"]["properties"]["results"]["items"]
    assert shown["properties"]["values"]["properties"]["genre"] == {"type": "string", "nullable": True}


def test_a_view_that_gives_a_name_twice(settings: Any, monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    """An error of the schema that names it, and not the end of the whole schema."""
    urlconf = ModuleType("urlconf")
    paths = [url_path("clash/", board(get_filters=lambda view: {"n": "bio"})), url_path("good/", board())]
    monkeypatch.setattr(urlconf, "urlpatterns", paths, raising=False)
    settings.ROOT_URLCONF = urlconf
    call_command(Command(), "--file", str(tmp_path / "schema.yml"))
    assert "The filter 'n' has the name of another parameter" in capsys.readouterr().err
    assert "/good/{id}/around/" in (tmp_path / "schema.yml").read_text()
