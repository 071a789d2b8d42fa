"""What ``manage.py check`` says about ``shown``."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models

from tests.test_checks import ANNOTATED, Case, assert_found, check, declaring
from tests.testapp.models import Account, Competitor

WRONG: list[tuple[Any, str, dict[str, Any]]] = [
    ("name", "expected a tuple of lookup paths, not 'name'", {}),
    (["name", 7], "expected a tuple of lookup paths", {}),
    (("name", "name"), "a column is named twice", {}),
    (("nick",), "Player has no field named 'nick'", {}),
    (("name", "boss"), "'boss' is an annotation", ANNOTATED),
    (("name__length",), "name__length: length follows a field that is not a relation", {}),
    (("friends",), "friends may have several values for one row", {}),
    (("friends__name",), "friends__name may have several values for one row", {}),
    (
        ("guild__competitor__lost",),
        "guild__competitor__lost may have several",
        {"model": Competitor, "order": ("-points",)},
    ),
]


@pytest.mark.parametrize(
    "case",
    [
        declaring("zrank.E050", f"{shown!r}", f"Wrong.shown: {says}", shown=shown, **more).values[0]
        for shown, says, more in WRONG
    ],
    ids=lambda case: case.says,
)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)


def test_columns_of_one_value_may_be_shown(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ("pk", "nick", "club", "club__is_open", "profile__motto")
    (case,) = declaring(None, "", model=Account, order=("-profile__points",), shown=shown).values
    assert list(check(case, settings, monkeypatch)) == []


@pytest.mark.parametrize(
    "field", [models.BinaryField(), models.TimeField()], ids=lambda field: type(field).__name__
)
def test_a_field_without_json_is_named(field: Any) -> None:
    from django.core.exceptions import FieldError
    from django.test.utils import isolate_apps

    from django_zrank.shown.column import ShownColumns

    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp"})
        model = type("Row", (models.Model,), {"held": field, "Meta": meta, "__module__": __name__})
        with pytest.raises(
            FieldError, match=f"held is a {type(field).__name__}, whose values can't be shown"
        ):
            ShownColumns.parse(model, ("held",))
