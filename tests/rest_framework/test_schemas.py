"""A parameter accepts what its schema allows."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.serializers import ValidationError

from django_zrank import RankIndex
from django_zrank.rest_framework.bands import BandParameter, RanksParameter, StepsParameter
from django_zrank.rest_framework.filters import GroupParameter, NullParameter, ValuesParameter
from django_zrank.rest_framework.parameters import (
    MemberParameter,
    MembersParameter,
    NumberParameter,
    Parameter,
)
from tests.rest_framework.urls import Regional
from tests.testapp.models import Host
from tests.testapp.zrank import ByDay, ByMoment, BySpan, NicknameRank


class ByAddress(RankIndex):
    model = Host
    order = ("-load",)
    facets = ("address",)


NICKNAMES, REGIONAL = NicknameRank.instance(), Regional.instance()

TEXTS: dict[str, tuple[Parameter, str]] = {
    "band": (BandParameter(REGIONAL), "exact"),
    "band with a ceiling": (BandParameter(REGIONAL, (5, 10)), "exact"),
    "band of days": (BandParameter(ByDay.instance()), "takes more"),
    "band of moments": (BandParameter(ByMoment.instance()), "takes more"),
    "band of spans": (BandParameter(BySpan.instance()), "takes more"),
    "ranks": (RanksParameter(), "exact"),
    "steps": (StepsParameter(BandParameter(REGIONAL)), "exact"),
    "member": (MemberParameter(NICKNAMES), "exact"),
    "members": (MembersParameter(NICKNAMES, 1000), "takes more"),  # Several in one text
    "values": (ValuesParameter(REGIONAL, "bio"), "exact"),
    "group": (GroupParameter(), "takes more"),  # Several in one text
}
"""Parameters whose texts a pattern describes."""


def takes(parameter: Parameter, texts: list[str]) -> bool:
    try:
        parameter.read(texts)
    except ValidationError:
        return False
    return True


def pattern(parameter: Parameter) -> str:
    schema = parameter.get_schema()
    return str(schema.get("items", schema)["pattern"])


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_what_the_pattern_allows_is_taken(name: str, data: st.DataObject) -> None:
    parameter, _strictness = TEXTS[name]
    text = data.draw(st.from_regex(pattern(parameter).replace("$", r"\Z"), fullmatch=True))
    assert takes(parameter, [text])


@pytest.mark.parametrize("name", [name for name in TEXTS if TEXTS[name][1] == "exact"])
@given(text=st.text(max_size=8) | st.text("0123456789.,eE+-_ nafPD\\\0", max_size=12))
def test_what_is_taken_is_what_the_pattern_allows(name: str, text: str) -> None:
    parameter, _strictness = TEXTS[name]
    assert takes(parameter, [text]) is bool(re.search(pattern(parameter).replace("$", r"\Z"), text))


@given(text=st.ip_addresses().map(str) | st.text("0123456789abcdef:./ ", max_size=12))
def test_addresses(text: str) -> None:
    parameter = ValuesParameter(ByAddress.instance(), "address")
    schema = jsonschema.Draft202012Validator(
        parameter.get_schema()["items"], format_checker=jsonschema.FormatChecker()
    )
    assert takes(parameter, [text]) is schema.is_valid(text.strip())


@given(text=st.text("0123456789+-. _e\u0663", max_size=6))
def test_numbers(text: str) -> None:
    parameter = NumberParameter(1, 500)
    value: Any = int(text) if re.fullmatch("-?[0-9]+", text) else text
    assert takes(parameter, [text]) is _is_valid(value, parameter)


@given(text=st.sampled_from(["true", "false", "True", "1", "0", "", "yes", "null", "on"]))
def test_flags(text: str) -> None:
    value: Any = {"true": True, "false": False}.get(text.lower(), text)
    assert takes(NullParameter("bio"), [text]) is _is_valid(value, NullParameter("bio"))


@pytest.mark.parametrize(
    "parameter",
    [MembersParameter(NICKNAMES, 7), StepsParameter(RanksParameter()), ValuesParameter(REGIONAL, "user")],
)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_how_many(parameter: Parameter, more: int) -> None:
    texts = ["1"] * (parameter.get_schema()["maxItems"] + more)
    assert takes(parameter, texts) is (more <= 0)


def _is_valid(value: Any, parameter: Parameter) -> bool:
    return bool(jsonschema.Draft202012Validator(parameter.get_schema()).is_valid(value))
