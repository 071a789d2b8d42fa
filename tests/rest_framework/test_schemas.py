"""A parameter accepts what its schema allows."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.serializers import ValidationError

from django_zrank import RankIndex
from django_zrank.rest_framework.query import (
    BandField,
    FlagField,
    GroupField,
    IntegerField,
    ListField,
    MemberField,
    MembersField,
    QueryField,
    RanksField,
    ValueField,
    ValuesField,
)
from tests.rest_framework.urls import Regional
from tests.testapp.models import Host
from tests.testapp.zrank import ByDay, ByMoment, BySpan, NicknameRank


class ByAddress(RankIndex):
    model = Host
    order = ("-load",)
    facets = ("address",)


NICKNAMES, REGIONAL = NicknameRank.instance(), Regional.instance()

TEXTS: dict[str, tuple[QueryField, str]] = {
    "band": (BandField(REGIONAL), "exact"),
    "band with a ceiling": (BandField(REGIONAL, (5, 10)), "exact"),
    "band of days": (BandField(ByDay.instance()), "takes more"),
    "band of moments": (BandField(ByMoment.instance()), "takes more"),
    "band of spans": (BandField(BySpan.instance()), "takes more"),
    "ranks": (RanksField(), "exact"),
    "steps": (ListField(BandField(REGIONAL), 10), "exact"),
    "member": (MemberField(NICKNAMES), "exact"),
    "members": (MembersField(NICKNAMES, 1000), "takes more"),  # Several in one text
    "values": (ValuesField(ValueField(REGIONAL, "bio"), "bio"), "exact"),
    "group": (ValuesField(GroupField(), "group"), "takes more"),  # Several in one text
}
"""QueryFields whose texts a pattern describes."""


def takes(parameter: QueryField, texts: list[str]) -> bool:
    try:
        parameter.run_validation(texts if isinstance(parameter, ListField) else texts[0])
    except ValidationError:
        return False
    return True


@cache
def pattern(name: str) -> str:
    schema = TEXTS[name][0].schema
    found = schema.get("items", schema)
    return str(found.get("anyOf", [found])[0]["pattern"]).replace("$", r"\Z")


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_what_the_pattern_allows_is_taken(name: str, data: st.DataObject) -> None:
    parameter, _strictness = TEXTS[name]
    text = data.draw(st.from_regex(pattern(name), fullmatch=True))
    assert takes(parameter, [text])


@pytest.mark.parametrize("name", [name for name in TEXTS if TEXTS[name][1] == "exact"])
@given(text=st.text(max_size=8) | st.text("0123456789.,eE+-_ nafPD\\\0", max_size=12))
def test_what_is_taken_is_what_the_pattern_allows(name: str, text: str) -> None:
    parameter, _strictness = TEXTS[name]
    assert takes(parameter, [text]) is bool(re.search(pattern(name), text))


@given(text=st.ip_addresses().map(str) | st.text("0123456789abcdef:./ ", max_size=12).filter(str.strip))
def test_addresses(text: str) -> None:
    parameter = ValuesField(ValueField(ByAddress.instance(), "address"), "address")
    schema = jsonschema.Draft202012Validator(
        parameter.schema["items"], format_checker=jsonschema.FormatChecker()
    )
    assert takes(parameter, [text]) is schema.is_valid(text.strip())


@given(text=st.text("0123456789+-. _e\u0663", max_size=6))
def test_numbers(text: str) -> None:
    parameter = IntegerField(min_value=1, max_value=500)
    value: Any = int(text) if re.fullmatch("-?[0-9]+", text) else text
    assert takes(parameter, [text]) is _is_valid(value, parameter)


@given(text=st.sampled_from(["true", "false", "True", "1", "0", "yes", "null", "on"]))
def test_flags(text: str) -> None:
    value: Any = {"true": True, "false": False}.get(text.lower(), text)
    assert takes(FlagField("bio", None), [text]) is _is_valid(value, FlagField("bio", None))


@pytest.mark.parametrize(
    "parameter",
    [
        MembersField(NICKNAMES, 7),
        ListField(RanksField(), 10),
        ValuesField(ValueField(REGIONAL, "user"), "user"),
    ],
)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_how_many(parameter: QueryField, more: int) -> None:
    texts = ["1"] * (parameter.schema["maxItems"] + more)
    assert takes(parameter, texts) is (more <= 0)


def _is_valid(value: Any, parameter: QueryField) -> bool:
    return bool(jsonschema.Draft202012Validator(parameter.schema).is_valid(value))
