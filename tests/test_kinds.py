"""All kinds of fields in all places: Redis, the database, JSON, query strings, facets and keys."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import jsonschema
import pytest
from django.db import connection, models
from django.db.models import F
from django.test.utils import isolate_apps
from rest_framework.permissions import AllowAny
from rest_framework.test import APIRequestFactory

import django_zrank
from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.codec import kinds
from django_zrank.codec.kinds import KINDS, Kind, kind_of
from django_zrank.codec.order import Order
from django_zrank.rest_framework import LeaderboardViewSet, RecommendationViewSet
from django_zrank.sync.push import push
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.rankings import ByRedis, by_sql
from tests.sync.capturing import table
from tests.test_database import full
from tests.testapp.methods import KEEPING


class Sample(NamedTuple):
    """What is tried of a kind."""

    field: models.Field[Any, Any]

    values: list[Any]
    """Different ones, among them the lowest and the highest; ascending if they can be ranked."""

    spellings: dict[str, Any]
    """Values by their texts in query strings."""

    misspelt: list[str]

    distances: dict[str, Any] = {}
    """By their texts in query strings, ascending."""

    absent: dict[str, list[str]] = {}
    """By database, values that it holds and Python doesn't have."""

    fingerprint: str = ""
    """What the fingerprint says of a criterion. Another one rebuilds every index that has it."""


NUMBERS = {"0": 0, "1": 1, "2.5": Decimal("2.5"), "1e3": 1000}
SPANS = {"00:00:00": timedelta(0), "PT1S": timedelta(seconds=1), "P1D": timedelta(days=1)}
KEY = UUID(int=10)

SAMPLES: dict[type[Kind], Sample] = {
    kinds.Integer: Sample(
        models.IntegerField(null=True),
        [-(2**31), -1, 0, 1, 7, 2**31 - 1],
        {"7": 7, "-1": -1, "007": 7},
        ["+7", " 7", "7 ", "7.0", "1_0", "\u0667", "seven", ""],
        NUMBERS,
        fingerprint="'Kind', {}",
    ),
    kinds.Big: Sample(
        models.BigIntegerField(null=True),
        [-(2**63), -(2**53) - 1, -(2**53), 0, 7, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1],
        {"7": 7, str(2**63 - 1): 2**63 - 1},
        ["+7", " 7", "7.0", "1_0", "\u0667", ""],
        NUMBERS,
        fingerprint="'Big', {}",
    ),
    kinds.Float: Sample(
        models.FloatField(null=True),
        [-1e308, -0.5, 0.0, 0.1, 0.30000000000000004, 12.5, 1e308],
        {"12.5": 12.5, "-5e-1": -0.5, "0": 0.0},
        ["+1", "nan", "inf", "1_0", " 1", ""],
        NUMBERS,
        fingerprint="'Float', {}",
    ),
    kinds.Fixed: Sample(
        models.DecimalField(max_digits=12, decimal_places=2, null=True),
        [Decimal(text) for text in ("-9999999999.99", "-0.01", "0.00", "0.10", "12.34", "9999999999.99")],
        {"12.34": Decimal("12.34"), "0.1": Decimal("0.10"), "-1e-2": Decimal("-0.01")},
        ["+1", "NaN", "0.001", "1_0", " 1", ""],
        NUMBERS,
        fingerprint="'Fixed', {'places': 2, 'is_wide': False}",
    ),
    kinds.Boolean: Sample(
        models.BooleanField(null=True),
        [False, True],
        {"true": True, "False": False},
        ["1", "t", "yes", " true", ""],
        {"0": 0, "1": 1},
        fingerprint="'Boolean', {}",
    ),
    kinds.Day: Sample(
        models.DateField(null=True),
        [date.min, date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date.max],
        {"2024-02-29": date(2024, 2, 29), "0001-01-01": date.min},
        ["2024-2-29", "2023-02-29", "24-02-29", "20240229", " 2024-02-29", "+2024-02-29", ""],
        {"0": 0, "1": 1, "P3D": timedelta(days=3)},
        fingerprint="'Day', {}",
        absent={
            "postgresql": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"],
            "mysql": ["0000-00-00"],
        },
    ),
    kinds.Moment: Sample(
        models.DateTimeField(null=True),
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1600, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(2024, 2, 29, 12, tzinfo=UTC),
            datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
        {
            "2024-02-29T12:00:00Z": datetime(2024, 2, 29, 12, tzinfo=UTC),
            "2024-02-29 13:00:00.000001+01": datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
        },
        ["2024-02-29T12", "2023-02-29T12:00Z", "12:00", "+2024-02-29", " 2024-02-29", ""],
        SPANS,
        fingerprint="'Moment', {}",
        absent={
            "postgresql": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-02 00:00"],
            "mysql": ["0000-00-00"],
        },
    ),
    kinds.Span: Sample(
        models.DurationField(null=True),
        [
            timedelta(days=-200_000),
            timedelta(microseconds=-1),
            timedelta(0),
            timedelta(microseconds=1),
            timedelta(days=1, seconds=90),
            timedelta(days=200_000, microseconds=1),
        ],
        {"1 00:01:30": timedelta(days=1, seconds=90), "PT0.000001S": timedelta(microseconds=1)},
        ["+1", "long", " 00:01:30", ""],
        SPANS,
        fingerprint="'Span', {}",
    ),
    kinds.Text: Sample(
        models.CharField(max_length=40, null=True),
        ["A", "a", "a ", "ä", "a,b:c", "*", "%2A", "日本"],
        {"a": "a", "A": "A", "a ": "a ", "a\\,b:c": "a,b:c", "日本": "日本"},
        ["a\0"],
    ),
    kinds.Identifier: Sample(
        models.UUIDField(null=True),
        [UUID(int=0), KEY, UUID(int=2**128 - 1)],
        {str(KEY): KEY, KEY.hex: KEY, str(UUID(int=2**128 - 1)).upper(): UUID(int=2**128 - 1)},
        ["7", f"{{{KEY}}}", f" {KEY}", f"urn:uuid:{KEY}", ""],
    ),
    kinds.Address: Sample(
        models.GenericIPAddressField(null=True),
        ["0.0.0.0", "10.0.0.1", "255.255.255.255", "::1", "2001:db8::1", str(IPv6Address(2**128 - 1))],
        {"10.0.0.1": "10.0.0.1", "2001:DB8:0::1": "2001:db8::1"},
        ["10.0.0", "10.0.0.0/24", "banana", " ::1", "010.0.0.1", ""],
    ),
}


def model_of(name: str, **fields: Any) -> Any:
    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp"})
        return type(name, (models.Model,), {**fields, "Meta": meta, "__module__": __name__})


def model_for(kind: Any) -> Any:
    return model_of(f"Of{kind.__name__}", n=models.IntegerField(default=0), value=SAMPLES[kind].field.clone())


def index_of(model: Any, *order: Any, **attributes: Any) -> type[RankIndex]:
    return type("Index", (RankIndex,), {"name": "kinds", "model": model, "order": order, **attributes})


def of(use: str) -> Any:
    return pytest.mark.parametrize(
        "kind", [kind for kind in SAMPLES if getattr(kind, use)], ids=lambda kind: kind.__name__
    )


def test_every_kind_is_tried() -> None:
    assert [*SAMPLES] == [*KINDS]
    for kind, sample in SAMPLES.items():
        assert type(kind_of(model_for(kind)._meta.get_field("value"))) is kind
        assert bool(sample.fingerprint) == bool(sample.distances) == kind.is_criterion
        assert sample.absent.keys() == kind.held.keys()


# Redis


@of("is_criterion")
def test_what_the_fingerprint_says(kind: Any) -> None:
    """It stays: another one would rebuild every index that has such a criterion."""
    found = Order.parse(model_for(kind), ["value"]).first.kind.declared
    assert ", ".join(map(repr, found)) == SAMPLES[kind].fingerprint


@of("is_criterion")
@pytest.mark.parametrize("order", [("value",), ("value", "n"), ("n", "value")], ids=str)
def test_values_return_and_keep_their_order(kind: Any, order: tuple[str, ...]) -> None:
    parsed = Order.parse(model_for(kind), order)
    places = []
    for value in SAMPLES[kind].values:
        given = tuple({"value": value, "n": 0}[path] for path in order)
        score, tie = parsed.encode(given)
        assert parsed.decode(float(repr(float(score))), tie) == given
        places.append((float(score), tie))
    assert places == sorted(set(places))


@of("is_criterion")
def test_distances_are_read_and_measured(kind: Any) -> None:
    found = Order.parse(model_for(kind), ["value"]).first.kind
    read = {text: found.parse_distance(text) for text in SAMPLES[kind].distances}
    assert read == SAMPLES[kind].distances
    units = list(map(found.distance, read.values()))
    assert units == sorted(units)
    assert units[0] == 0


# Redis and the database


@contextmanager
def populated(kind: Any) -> Iterator[Any]:
    """The model of a kind, with two rows of each value, of null, and of each value that Python doesn't have."""
    model, absent = model_for(kind), SAMPLES[kind].absent.get(connection.vendor, [])
    with table(model):
        values = [*SAMPLES[kind].values, None, *(None for _ in absent)] * 2
        model.rows = model.objects.bulk_create(
            model(n=at % 3, value=value) for at, value in enumerate(values)
        )
        with lenient() as cursor:
            for half in (len(values) // 2, len(values)):
                for row, text in zip(model.rows[half - len(absent) : half], absent, strict=True):
                    cursor.execute(
                        f"UPDATE {model._meta.db_table} SET value = %s WHERE id = %s", [text, row.pk]
                    )
        try:
            yield model
        finally:
            triggers.drop("default", ["kinds"])


@contextmanager
def lenient() -> Iterator[Any]:
    """A cursor by which MariaDB takes ``0000-00-00``."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET @before = @@SESSION.sql_mode, SESSION sql_mode = ''")
        yield cursor
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = @before")


def answers(ranking: Any, sample: Sample) -> list[Any]:
    """Whatever can be asked."""
    everybody = list(ranking.top(100))
    pks = [entry.pk for entry in everybody]
    found: list[Any] = [everybody, list(ranking.reversed().top(100)), ranking.ranks(pks), ranking.count()]
    found += [ranking.around(pk, 3) for pk in pks[:3]]
    scores = sorted({entry.score for entry in everybody})
    found += [ranking.rank_of_score(score) for score in scores]
    found += [ranking.between(low, high) for low in scores for high in scores[::2]]
    bands = sample.distances.values() if everybody and everybody[0].score in sample.values else [0, 1]
    found += [full(ranking.recommend(pk, n=100, band=band)) for pk in pks[:9] for band in bands]
    return found


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@of("is_criterion")
def test_the_database_answers_as_redis_does(kind: Any) -> None:
    sample = SAMPLES[kind]
    with populated(kind) as model:
        for method, *order in [
            ("ordinal", "value"),
            (KEEPING, "-value", "n"),
            ("competition", "n", "-value"),
            (KEEPING, "-n", F("value").asc(nulls_first=True)),
        ]:
            index = index_of(model, *order, ranking_method=method)
            triggers.install("default", [index.instance()])  # as migrate does for each release
            sync(index)
            redis = answers(ByRedis(index.instance()), sample)
            assert answers(by_sql(index), sample) == redis
            push(index.instance(), list(model.objects.values_list("pk", flat=True)))
            assert verify(index.instance()).ok
            scores = [entry.score for entry in redis[0]]
            if order[0] == "value":
                assert scores == sorted(sample.values * 2)
            elif order[0] == "-value":
                assert scores == sorted(sample.values * 2, reverse=True)
            else:
                assert len(scores) == len(model.rows)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@of("is_facet")
def test_each_value_is_a_facet(kind: Any) -> None:
    with populated(kind) as model:
        index = index_of(model, "n", facets=("value", ("n", "value")))
        sync(index)
        assert verify(index.instance()).ok
        values = [*SAMPLES[kind].values, None]
        for ranking in (ByRedis(index.instance()), by_sql(index)):
            counts = Counter(row.value for row in model.rows)
            assert ranking.counts("value") == counts
            assert sum(ranking.counts("n", "value").values()) == len(model.rows)
            for value in values:
                pks = {row.pk for row in model.rows if row.value == value}
                assert {entry.pk for entry in ranking.filter(value=value).top()} == pks
                assert ranking.exclude(value=value).count() == len(model.rows) - len(pks)
            for text, value in SAMPLES[kind].spellings.items():
                if "\\" not in text:
                    text = index.instance().faceting.reading("value").kind("value").spelled(text)
                    assert ranking.filter(value=text).count() == ranking.filter(value=value).count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@of("is_key")
def test_each_value_is_a_key(kind: Any) -> None:
    """However the database casts it to text in a mark."""
    sample = SAMPLES[kind]
    field = sample.field.clone()
    field.primary_key, field.null, field._unique = True, False, True
    model = model_of(f"By{kind.__name__}", key=field, n=models.IntegerField(default=0))
    values = sample.values
    if connection.vendor == "mysql" and kind is kinds.Text:
        values = ["A", "b", "日本"]  # "A", "a", "a " and "ä" are one key
    with table(model):
        model.objects.bulk_create(model(key=value) for value in values)
        index = index_of(model, "n")
        try:
            sync(index)
            for at, value in enumerate(values):
                model.objects.filter(pk=value).update(n=at)
            sync(index)
        finally:
            triggers.drop("default", ["kinds"])
        declared = index.instance()
        for ranking in (index.ranking, by_sql(index)):
            assert [entry.pk for entry in ranking.top(100)] == values
            for at, value in enumerate(values, 1):
                assert declared.parse_pk(declared.to_text(value)) == value
                assert ranking.rank(declared.to_text(value)) == ranking.rank(value) == at
        for text, value in sample.spellings.items():
            if value in values and "\\" not in text:
                assert asked(LeaderboardViewSet, index, pk=text)["results"][0]["score"] == values.index(value)
        for text in sample.misspelt:
            if text.strip(" ") == text and text:  # there may be spaces between ids
                assert asked(LeaderboardViewSet, index, pk=text) == 400, text


# The REST API


def asked(view: Any, index: Any, **query: Any) -> Any:
    """The answer as a client reads it, or the status of an error."""
    allowed = {"allow_near": True} if view is RecommendationViewSet else {}
    action = view.as_view({"get": "list"}, index=index, permission_classes=[AllowAny], **allowed)
    response = action(APIRequestFactory().get("/", query))
    return json.loads(response.render().content) if response.status_code == 200 else response.status_code


def validate(schema: Any, value: Any) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@of("is_criterion")
def test_scores_and_distances_by_rest(kind: Any) -> None:
    sample = SAMPLES[kind]
    with populated(kind) as model:
        index = index_of(model, "value")
        sync(index)
        found = index.instance().ordering.first.kind
        shown = [one["score"] for one in asked(LeaderboardViewSet, index, page_size=100)["results"]]
        assert len(shown) == 2 * len(sample.values)
        for score in shown:
            validate(found.schema, score)
        narrow, *_, wide = sample.distances
        for text, value in sample.spellings.items():
            answer = asked(RecommendationViewSet, index, near=text, band=narrow, n=5)
            assert [one["pk"] for one in answer["results"]] == [
                entry.pk for entry in index.ranking.near(value, n=5, band=sample.distances[narrow])
            ], text
        near = next(iter(sample.spellings))
        for text in sample.misspelt:
            assert asked(RecommendationViewSet, index, near=text, band=narrow) == 400, text
        for text, distance in sample.distances.items():
            answer = asked(RecommendationViewSet, index, near=near, band=f"{text},{wide}")
            assert (
                answer["candidates"]
                == index.ranking.near(
                    sample.spellings[near], band=(distance, sample.distances[wide])
                ).candidates
            )
            for side in answer["band"]:
                validate(found.distance_schema, side)
            again = asked(RecommendationViewSet, index, near=near, band=",".join(map(str, answer["band"])))
            assert (again["band"], again["candidates"]) == (answer["band"], answer["candidates"])
        for text in ("-1", "x", " 1", "+1", "1_0"):
            assert asked(RecommendationViewSet, index, near=near, band=text) == 400, text


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@of("is_facet")
def test_facets_by_rest(kind: Any) -> None:
    sample = SAMPLES[kind]
    with populated(kind) as model:
        index = index_of(model, "n", facets=("value",))
        sync(index)
        for text in sample.spellings:
            assert asked(LeaderboardViewSet, index, value=text)["count"] == 2, text
        for text in filter(None, sample.misspelt):
            assert asked(LeaderboardViewSet, index, value=text) == 400, text
        view = LeaderboardViewSet.as_view({"get": "counts"}, index=index, permission_classes=[AllowAny])
        response = view(APIRequestFactory().get("/", {"facet": "value", "n": 100})).render()
        shown = [one["values"]["value"] for one in json.loads(response.content)["results"]]
        assert len(shown) == len(sample.values) + 1
        for value in shown:
            if value is not None:
                validate(index.instance().faceting.reading("value").kind("value").schema, value)


# Only kinds know Django's classes

ROOT = Path(django_zrank.__file__).parent

OTHERS = {
    "write_behind/column.py": "write_behind takes integers and decimals",
    "idle/awake.py": "idle takes datetimes",
    "windows/lookup.py": "the lookup is of dates and datetimes",
    "shown/column.py": "files and JSON can be shown, and are of no kind",
    "write_behind/flush.py": "the column of write_behind",
}
"""Modules outside of ``codec/kinds.py`` that distinguish classes of fields, with the reason."""


def test_nobody_else_distinguishes_classes_of_fields() -> None:
    classes = {cls.__name__ for kind in KINDS for cls in kind.fields}
    classes |= {"BinaryField", "JSONField", "TimeField"}
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {f"models.{name}" for name in classes}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.db"):
                names |= classes & {one.name for one in node.names}
        made = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        made |= {id(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
        used = [
            node for node in nodes if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in made
        ]
        if any(ast.unparse(node) in names for node in used):
            found.add(path.relative_to(ROOT).as_posix())
    assert {name for name in found if not name.startswith(("codec/kinds.py", "migrations/"))} == {
        name for name in OTHERS if (ROOT / name).exists()
    }
