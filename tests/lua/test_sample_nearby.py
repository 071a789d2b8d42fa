"""The reply as it is, and that the short script draws as the long one does. Who is drawn is shown in
test_recommendations.py and test_uniformity.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank.exceptions import IndexUnavailable, NotBuilt
from django_zrank.queries.sampling import Draw, Sample
from django_zrank.queries.view import View
from django_zrank.store import Change, Store
from tests.populations import fill
from tests.testapp.zrank import PlayerAscending

from .conftest import ask


@pytest.fixture
def sample(store: Store) -> Callable[..., Any]:
    """A function that draws near a member: how many, and other fields of a draw."""

    def draw(member: str, wanted: int, bands: Any = ((1, 1),), stream: Any = bytes, **other: Any) -> Any:
        with mock.patch("os.urandom", stream):
            return ask(store, Draw(member, wanted, bands, **other))

    return draw


def test_the_reply(sample: Callable[..., Any]) -> None:
    assert sample("2", 10) == Sample(3, 1, 0, 2, [(0, b"1", 1.0), (2, b"3", 3.0)], None)


def test_says_which_band_it_used(sample: Callable[..., Any]) -> None:
    assert sample("1", 2, bands=[(0, 0), (0, 1), (0, 2), (0, 3)]) == Sample(
        3,
        0,
        2,
        2,
        [(1, b"2", 2.0), (2, b"3", 3.0)],
        None,
    )


def test_excluded_members_are_counted_and_not_offered(sample: Callable[..., Any]) -> None:
    assert sample("2", 10, excluded=["1", "77"]) == Sample(3, 1, 0, 2, [(2, b"3", 3.0)], None)


def test_a_member_that_is_not_there(sample: Callable[..., Any]) -> None:
    assert sample("9", 10) is None


def test_an_index_that_is_not_there(zrank: Redis, store: Store, sample: Callable[..., Any]) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        sample("2", 10)


def test_too_few_random_numbers_are_an_error_and_not_a_bias(sample: Callable[..., Any]) -> None:
    with pytest.raises(IndexUnavailable, match="out of random numbers"):
        sample("2", 10, stream=lambda count: b"")


def test_numbers_that_would_favour_somebody_are_drawn_again(store: Store, sample: Callable[..., Any]) -> None:
    """2**48 - 1 is the one number too many for three candidates."""
    store.apply_changes(store.begin_write(), [Change("4", 4)])
    top, one = b"\xff" * 6, (1).to_bytes(6, "little")
    drawn = sample("1", 2, bands=[(0, 3)], stream=lambda count: top + one + bytes(count - 12))
    assert [member for _, member, _ in drawn.drawn] == [b"3", b"2"]


tricky = st.one_of(
    # Integers whose bytes are found across two others, negative ones, and the largest that a double holds.
    st.integers(0, 2**16).map(lambda n: n * 257),
    st.sampled_from([1, 256, 0x0101010101, 0x7171717171, 2**53 - 1, 1 - 2**53, -1, -256]),
    st.integers(1 - 2**53, 2**53 - 1),
)


@given(pks=st.sets(tricky, min_size=3, max_size=300), kept=st.randoms(use_true_random=False))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_integers_are_told_apart(zrank: Redis, pks: set[int], kept: random.Random) -> None:
    """All but two candidates are excluded, and these two are drawn."""
    me, *two = kept.sample(sorted(pks), 3)
    store = fill(PlayerAscending, dict.fromkeys(pks, 1))
    excluded = [pk for pk in pks if pk not in two]
    sample = ask(store, Draw(str(me), 2, [(1, 1)], excluded=excluded, seed=1))
    assert sample is not None
    assert {int(member) for _, member, _ in sample.drawn} == set(two)


@given(
    scores=st.lists(st.integers(0, 30), min_size=1, max_size=150),
    wanted=st.integers(1, 20),
    bands=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=3),
    reverse=st.booleans(),
    excluded=st.sets(st.integers(0, 150)),
    as_text=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_short_way_draws_as_the_long_one(
    zrank: Redis,
    scores: list[int],
    wanted: int,
    bands: list[tuple[int, int]],
    reverse: bool,
    excluded: set[int],
    as_text: bool,
    seed: int,
) -> None:
    store = fill(PlayerAscending, dict(enumerate(scores)))
    draw = Draw(
        "0", wanted, bands, excluded=[str(pk) for pk in excluded] if as_text else list(excluded), seed=seed
    )
    short = ask(store, draw, reverse=reverse)
    with mock.patch.object(View, "is_plain", False):
        other = ask(store, draw, reverse=reverse)
    assert short == other
