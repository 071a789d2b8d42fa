from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import NotBuilt
from django_zrank.store import Bound, Page, Store

HOW = {"reverse": True, "method": "ordinal"}


def test_a_page_by_place(store: Store) -> None:
    assert store.page(1, 9, **HOW) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])  # type: ignore[arg-type]


def test_behind_the_end(store: Store) -> None:
    assert store.page(7, 9, **HOW) == Page(3, 7, 0, 7, [])  # type: ignore[arg-type]


def test_a_page_around_a_member(store: Store) -> None:
    page = store.page_around("1", 2, **HOW)  # type: ignore[arg-type]
    assert page == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])
    assert store.page_around("9", 2, **HOW) is None  # type: ignore[arg-type]


def test_a_page_of_scores(store: Store) -> None:
    page = store.page_between(Bound("2.5", b"", 2.5), Bound("", b"", None), 1, reverse=True, method="dense")
    assert page == Page(3, 1, 2, 0, [(b"2", 2.0)])  # a plain index keeps no distinct values


def test_an_index_that_is_not_there(zrank: Redis, store: Store) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        store.page(0, 1, **HOW)  # type: ignore[arg-type]
