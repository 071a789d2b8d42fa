"""Facets: declarations, and the names of the rankings of their values."""

from __future__ import annotations

import pytest
from django.db import models
from hypothesis import given
from hypothesis import strategies as st

from django_zrank.codec.facets import Facet, Facets
from django_zrank.codec.kinds import kind_of
from tests.testapp.models import Competitor, Guild, Host

texts = st.one_of(st.none(), st.text(max_size=20))


@given(one=texts, other=texts)
def test_no_two_values_share_a_name(one: str | None, other: str | None) -> None:
    facet = Facet.parse(Competitor, "region")
    assert (facet.ranking([one]) == facet.ranking([other])) == (one == other)
    assert facet.decode(facet.ranking([one])) == (one,)


@given(st.lists(texts, min_size=2, max_size=2), st.lists(texts, min_size=2, max_size=2))
def test_nor_do_two_values_together(some: list[str | None], others: list[str | None]) -> None:
    facet = Facet.parse(Competitor, ("region", "platform"))
    assert (facet.ranking(some) == facet.ranking(others)) == (some == others)
    assert facet.decode(facet.ranking(some)) == tuple(some)


def test_a_name_is_readable() -> None:
    assert Facet.parse(Competitor, "region").ranking(["kantou"]) == "region:kantou"
    assert Facet.parse(Competitor, ("region", "tags")).ranking(["a,b", 7]) == "region,tags:a%2Cb,7"
    assert Facet.parse(Competitor, "region").ranking([None]) == "region:*"
    assert Facet.parse(Competitor, "region").ranking(["*"]) == "region:%2A"


@pytest.mark.parametrize("text", ["2001:DB8::1", "2001:db8:0:0::1", " 2001:db8::1 "])
def test_an_address_has_one_name(text: str) -> None:
    """A column that is text, as on SQLite, may hold any."""
    facet = Facet.parse(Host, "address")
    assert facet.ranking([text]) == facet.ranking(["2001:db8::1"])
    assert facet.parse_value("address", text) == "2001:db8::1"


@pytest.mark.parametrize("text", ["", "banana", "::banana", "10.0.0", "10.0.0.0/24", "7"])
def test_what_is_no_address(text: str) -> None:
    facet = Facet.parse(Host, "address")
    with pytest.raises(ValueError, match="is not a value of"):
        facet.parse_value("address", text)
    assert facet.ranking([text]) != facet.ranking([None])  # such a row has a ranking nevertheless


def test_an_address_of_another_protocol() -> None:
    field = models.GenericIPAddressField(protocol="IPv4")
    facet = Facet(("address",), (kind_of(field),), many=False)
    assert facet.parse_value("address", "10.0.0.1") == "10.0.0.1"
    with pytest.raises(ValueError, match="is not a value of"):
        facet.parse_value("address", "2001:db8::1")


def test_an_instance_stands_for_its_primary_key() -> None:
    assert Facet.parse(Competitor, "guild").parse_value("guild", Guild(pk=7)) == 7


def test_only_to_many_paths_may_have_several_values() -> None:
    parsed = Facets.parse(Competitor, ["region", "guild__slug", "tags__word", ("platform", "tags__word")])
    assert [facet.many for facet in parsed.all] == [False, False, True, True]
    assert parsed.paths == ("region", "guild__slug", "tags__word", "platform")
    assert parsed.many


def test_a_member_stands_in_the_ranking_of_each_combination() -> None:
    parsed = Facets.parse(Competitor, ["region", ("region", "tags")])
    assert parsed.rankings({"region": ["kantou"], "tags": [2, 1]}) == [
        "region,tags:kantou,1",
        "region,tags:kantou,2",
        "region:kantou",
    ]


def test_a_facet_is_found_by_its_paths_in_any_order() -> None:
    parsed = Facets.parse(Competitor, [("region", "platform"), "tags"])
    assert parsed.of(["platform", "region"]) is parsed.all[0]
    assert parsed.of(["region"]) is None
