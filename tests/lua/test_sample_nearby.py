"""The reply as it is. Who is drawn is shown in test_recommendations.py and test_uniformity.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from django_zrank.exceptions import IndexUnavailable
from django_zrank.queries import draws
from django_zrank.queries.draws import Draw, Sample
from django_zrank.store import Change, Store
from tests.writes import apply_changes, begin_write

from .conftest import ask


@pytest.fixture
def sample(store: Store) -> Callable[..., Any]:
    """A function that draws near a member: how many, and other fields of a draw."""

    def draw(member: str, wanted: int, bands: Any = ((1, 1),), stream: Any = bytes, **other: Any) -> Any:
        with mock.patch.object(draws, "urandom", stream):
            return ask(store, Draw(member, wanted, bands, **other))

    return draw


def test_the_reply(sample: Callable[..., Any]) -> None:
    assert sample("2", 10) == Sample(0, 2, [(1.0, b"1", 0), (3.0, b"3", 2)], is_ranked=True)


def test_says_which_band_it_used(sample: Callable[..., Any]) -> None:
    bands = [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert sample("1", 2, bands=bands) == Sample(2, 2, [(2.0, b"2", 1), (3.0, b"3", 2)], is_ranked=True)


def test_a_member_that_is_not_there(sample: Callable[..., Any]) -> None:
    assert sample("9", 10) is None


def test_too_few_random_numbers_are_an_error_and_not_a_bias(sample: Callable[..., Any]) -> None:
    with pytest.raises(IndexUnavailable, match="out of random numbers"):
        sample("2", 10, stream=lambda count: b"")


def test_numbers_that_would_favour_somebody_are_drawn_again(store: Store, sample: Callable[..., Any]) -> None:
    """2**48 - 1 is the one number too many for three candidates."""
    apply_changes(store, begin_write(store), [Change("4", 4)])
    top, one = b"\xff" * 6, (1).to_bytes(6, "little")
    drawn = sample("1", 2, bands=[(0, 3)], stream=lambda count: top + one + bytes(count - 12))
    assert [member for _, member, _ in drawn.drawn] == [b"3", b"2"]
