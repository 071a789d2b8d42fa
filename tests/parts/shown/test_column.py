"""Values as JSON, and back: those of every kind of field, read from the database, and any text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps
from hypothesis import given
from hypothesis import strategies as st

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.codec.kinds import KINDS
from django_zrank.codec.layout import Layout
from django_zrank.shown.column import ShownColumn, ShownColumns
from django_zrank.sync.push import push
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.rankings import by_sql


def columns(*fields: Any) -> ShownColumns:
    return ShownColumns({f"column_{at}": field for at, field in enumerate(fields)})


def there_and_back(field: Any, value: Any) -> Any:
    shown = columns(field)
    return shown.decode([shown.encode([value])])[0]["column_0"]


@given(st.text(), st.binary(max_size=9), st.lists(st.sampled_from(["region:a", "x:[", "y:"])))
def test_any_text(text: str, tie: bytes, names: list[str]) -> None:
    """A membership tells its parts from each other, whatever they are."""
    shown = columns(models.CharField(), models.JSONField())
    attachment = shown.encode([text, {text: [text]}])
    is_valid = text == text.encode(errors="replace").decode()
    expected = {"column_0": text if is_valid else None, "column_1": {text: [text]}}
    assert shown.decode([attachment, b"", attachment]) == [
        expected,
        {"column_0": None, "column_1": None},
        expected,
    ]
    layout = Layout(len(tie), memberships=True)
    named = "\0".join(names).encode()
    for membership in (
        tie + attachment + (b"\0" + named if named else b""),
        tie + named,
    ):
        assert layout.names_of(membership) == named
    assert layout.attachment_of(tie + attachment) == attachment
    assert layout.attachment_of(tie + attachment + b"\0x:") == attachment
    assert layout.attachment_of(tie + named) == b""


def test_what_a_field_can_hold_without_a_kind() -> None:
    assert there_and_back(models.ImageField(), "avatars/ada.png") == "avatars/ada.png"
    for value in (
        json.loads("[" * 99 + "1" + "]" * 99),
        {"a": [1, None, "\0"]},
        [],
        "text",
        0,
        False,
        1.5,
        None,
    ):
        assert there_and_back(models.JSONField(), value) == value
    assert there_and_back(models.JSONField(), {"a": object()}) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (models.FloatField(), float("nan")),
        (models.FloatField(), "text"),
        (models.DecimalField(max_digits=40, decimal_places=2), "1e30"),
        (models.IntegerField(), 2**63),
        (models.DateField(), "2026-01-01"),
        (models.CharField(), b"\xff"),
        (models.UUIDField(), "x"),
        (models.GenericIPAddressField(), "10.0.0.0/8"),
        (models.JSONField(), [float("inf")]),
        (models.JSONField(), {"\ud800": 1}),
        (models.JSONField(), json.loads("[" * 900 + "]" * 900)),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_what_can_t_be_represented_is_none(field: Any, value: Any) -> None:
    """Its row is ranked all the same."""
    assert there_and_back(field, value) is None


def test_json_is_compact_and_readable() -> None:
    assert (
        columns(models.CharField(), models.IntegerField()).encode(["日本\0", 7])
        == '["日本\\u0000",7]'.encode()
    )
    assert json.loads(columns(models.BooleanField()).encode([True])) == [1]


@contextmanager
def populated(kind: Any) -> Iterator[Any]:
    from tests.test_kinds import populated as populated_model

    with populated_model(kind) as model:
        yield model


@pytest.mark.part("sql")
@pytest.mark.part("rest_framework")
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_is_shown_as_the_row_has_it(kind: Any) -> None:
    """From each database, also values that Python doesn't have: they are None."""
    with populated(kind) as model:
        attributes = {"name": "kinds", "model": model, "order": ("n",), "shown": ("value",)}
        index = type("Index", (RankIndex,), attributes)
        triggers.install("default", [index.instance()])
        sync(index)
        expected = {row.pk: row.value for row in model.rows}
        for _ in range(2):
            assert {entry.pk: entry.shown["value"] for entry in index.ranking.top(100)} == expected
            assert {entry.pk: entry.shown["value"] for entry in by_sql(index).top(100)} == expected
            assert verify(index.instance()).ok
            push(index.instance(), list(expected))
        types = {type(value) for value in expected.values()}
        assert {type(entry.shown["value"]) for entry in index.ranking.top(100)} == types


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
def test_files_and_json_are_read_from_the_database() -> None:
    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp"})
        fields = {
            "n": models.IntegerField(),
            "photo": models.FileField(null=True),
            "gear": models.JSONField(null=True),
        }
        model: Any = type("Pilot", (models.Model,), {**fields, "Meta": meta, "__module__": __name__})
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        attributes = {"name": "pilots", "model": model, "order": ("n",), "shown": ("photo", "gear")}
        index = type("Index", (RankIndex,), attributes)
        triggers.install("default", [index.instance()])
        model.objects.create(n=1, photo="ada.png", gear={"hat": [1, {"b": None}]})
        model.objects.create(n=2)
        sync(index)
        assert [entry.shown for entry in index.ranking.top()] == [
            {"photo": "ada.png", "gear": {"hat": [1, {"b": None}]}},
            {"photo": "", "gear": None},
        ]
        assert verify(index.instance()).ok
        model.objects.update(gear="x")
        sync(index)
        assert [entry.shown["gear"] for entry in index.ranking.top()] == ["x", "x"]
    finally:
        triggers.drop("default", ["pilots"])
        with connection.schema_editor() as editor:
            editor.delete_model(model)


def test_a_column_is_encoded_by_itself() -> None:
    column = ShownColumn(models.DecimalField(max_digits=6, decimal_places=2))
    assert column.encode("1.50") == 150
