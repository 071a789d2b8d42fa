"""One spelling of a key's value, whatever it comes as."""

from __future__ import annotations

import enum
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import models
from hypothesis import given
from hypothesis import strategies as st

from django_zrank.codec.kinds import key_kind
from tests.testapp.models import Manager, Zone

KEY = uuid.UUID("ab" * 16)


class Colour(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    RED = "red"


class Lower(models.CharField):  # type: ignore[type-arg]
    """A field that makes of a caller's text what the database doesn't hold."""

    def to_python(self, value: Any) -> Any:
        return str(value).lower()


@pytest.mark.parametrize(
    ("field", "forms", "text"),
    [
        (models.BigAutoField(), [7, "7", "007", " 7"], "7"),
        (models.PositiveBigIntegerField(), [2**63 + 1, str(2**63 + 1)], str(2**63 + 1)),
        (models.UUIDField(), [KEY, str(KEY), KEY.hex, str(KEY).upper(), f"{{{KEY}}}"], str(KEY)),
        (models.BooleanField(), [True, "true", "t", "1", 1, "True"], "True"),
        (models.BooleanField(), [False, "false", "f", "0", 0, "False"], "False"),
        (models.GenericIPAddressField(), ["10.0.0.1", "10.0.0.1/32"], "10.0.0.1"),
        (models.GenericIPAddressField(), ["2001:DB8::1", "2001:db8::1/128", "2001:db8:0::1"], "2001:db8::1"),
        (models.GenericIPAddressField(), ["::10.0.0.1/128", "::a00:1"], "::a00:1"),
        (models.GenericIPAddressField(unpack_ipv4=True), ["::ffff:10.0.0.1"], "10.0.0.1"),
        (models.CharField(), [Colour.RED, "red"], "red"),
        (models.SlugField(), [" 007 "], " 007 "),
        (Lower(), ["Bob"], "Bob"),
        (Zone._meta.get_field("gateway"), ["::1/128"], "::1"),
        (Manager._meta.pk, ["7"], "7"),
    ],
    ids=repr,
)
def test_every_form_of_a_value_has_one_spelling(field: Any, forms: list[Any], text: str) -> None:
    parse = key_kind(field).parse
    assert {str(parse(form)) for form in forms} == {text}
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (models.IntegerField(), "seven"),
        (models.IntegerField(), ""),
        (models.UUIDField(), "abc"),
        (models.UUIDField(), 7),
        (models.BooleanField(), "maybe"),
        (models.GenericIPAddressField(), "10.0.0.0/24"),
        (models.GenericIPAddressField(), "2001:db8::/64"),
        (models.GenericIPAddressField(), "banana"),
        (models.GenericIPAddressField(), "::banana"),
        (models.CharField(), "\ud800"),
        (models.CharField(), b"bytes"),
    ],
    ids=repr,
)
def test_what_is_no_value_is_refused(field: Any, text: Any) -> None:
    with pytest.raises(ValueError):
        key_kind(field).parse(text)


@pytest.mark.parametrize(
    "given", [True, 7.5, Decimal("7.5"), Fraction(15, 2), None, [7], "seven", float("inf")], ids=repr
)
def test_what_a_caller_cant_mean(given: Any) -> None:
    with pytest.raises(ValueError):
        key_kind(models.IntegerField()).parse_input(given)


def test_a_caller_may_give_what_the_field_understands() -> None:
    assert key_kind(Lower()).parse_input("Bob") == "bob"
    assert key_kind(models.UUIDField()).parse_input(7) == uuid.UUID(int=7)
    assert key_kind(models.BooleanField()).parse_input(True) is True
    assert key_kind(models.IntegerField()).parse_input(7.0) == 7
    assert key_kind(models.IntegerField()).parse_input(Decimal("7.0")) == 7


@given(st.ip_addresses())
def test_addresses_there_and_back(address: Any) -> None:
    parse = key_kind(Zone._meta.get_field("gateway")).parse
    text = parse(str(address))
    assert parse(text) == parse(str(address).upper()) == parse(f"{address}/{address.max_prefixlen}") == text
