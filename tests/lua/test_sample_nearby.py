"""The reply as it is. Who is drawn is shown in test_recommendations.py and test_uniformity.py."""

from __future__ import annotations

from functools import partial

import pytest
from redis import Redis

from django_zrank.exceptions import IndexUnavailable, NotBuilt
from django_zrank.store import Change, Store


@pytest.fixture
def sample(store: Store) -> partial[object]:
    return partial(store.sample_nearby, reverse=False, bands=[(1, 1)], excluded=(), numbers=bytes)


def test_the_reply(sample: partial[object]) -> None:
    assert sample("2", 10) == (3, 1, 0, 2, [(0, b"1", 1.0), (2, b"3", 3.0)], None)


def test_says_which_band_it_used(sample: partial[object]) -> None:
    assert sample("1", 2, bands=[(0, 0), (0, 1), (0, 2), (0, 3)]) == (
        3,
        0,
        2,
        2,
        [(1, b"2", 2.0), (2, b"3", 3.0)],
        None,
    )


def test_excluded_members_are_counted_and_not_offered(sample: partial[object]) -> None:
    assert sample("2", 10, excluded=["1", "77"]) == (3, 1, 0, 2, [(2, b"3", 3.0)], None)


def test_a_member_that_is_not_there(sample: partial[object]) -> None:
    assert sample("9", 10) is None


def test_an_index_that_is_not_there(zrank: Redis, store: Store, sample: partial[object]) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        sample("2", 10)


def test_too_few_random_numbers_are_an_error_and_not_a_bias(sample: partial[object]) -> None:
    with pytest.raises(IndexUnavailable, match="out of random numbers"):
        sample("2", 10, numbers=lambda count: b"")


def test_numbers_that_would_favour_somebody_are_drawn_again(store: Store, sample: partial[object]) -> None:
    """2**48 - 1 is the one number too many for three candidates."""
    store.apply_changes(store.begin_write(), [Change("4", 4)])
    top, one = b"\xff" * 6, (1).to_bytes(6, "little")
    drawn = sample("1", 2, bands=[(0, 3)], numbers=lambda count: top + one + bytes(count - 12))
    assert [member for _, member, _ in drawn.drawn] == [b"3", b"2"]  # type: ignore[attr-defined]
