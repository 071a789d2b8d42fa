from __future__ import annotations

from django_zrank.queries.pages import Bound, Page, PageAround, PageAt, PageBetween
from django_zrank.store import Store

from .conftest import ask


def test_a_page_by_position(store: Store) -> None:
    assert ask(store, PageAt(1, 9), reverse=True) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])


def test_behind_the_end(store: Store) -> None:
    assert ask(store, PageAt(7, 9), reverse=True) == Page(3, 7, 0, 7, [])


def test_a_page_around_a_member(store: Store) -> None:
    assert ask(store, PageAround("1", 2), reverse=True) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])
    assert ask(store, PageAround("9", 2), reverse=True) is None


def test_a_page_of_scores_from_an_offset_on(store: Store) -> None:
    between = PageBetween(Bound("3", b"", 3), Bound("2", b"", 2), 9, offset=1)
    assert ask(store, between, reverse=True) == Page(3, 1, 1, 1, [(b"2", 2.0)])
    assert ask(store, between._replace(offset=5), reverse=True) == Page(3, 5, 0, 5, [])
