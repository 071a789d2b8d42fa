from __future__ import annotations

from redis import Redis

from django_zrank.queries.pages import Bound, Page, PageAbove, PageAround, PageAt, PageBetween
from django_zrank.store import Store
from tests.populations import fill
from tests.testapp.zrank import PlayerAscending

from .conftest import ask


def test_a_page_by_position(store: Store) -> None:
    assert ask(store, PageAt(1, 9), reverse=True) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])


def test_behind_the_end(store: Store) -> None:
    assert ask(store, PageAt(7, 9), reverse=True) == Page(3, 7, 0, 7, [])


def test_a_page_around_a_member(store: Store) -> None:
    assert ask(store, PageAround("1", 2), reverse=True) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])
    assert ask(store, PageAround("9", 2), reverse=True) is None


def test_a_page_of_the_last_ranked_better(store: Store) -> None:
    assert ask(store, PageAbove("1"), reverse=True) == Page(3, 1, 2, 1, [(b"2", 2.0), (b"1", 1.0)])
    assert ask(store, PageAbove("3"), reverse=True) == Page(3, 0, 3, 0, [(b"3", 3.0)])
    assert ask(store, PageAbove("9"), reverse=True) is None


def test_a_page_of_the_last_ranked_better_passes_over_equals(zrank: Redis) -> None:
    store = fill(PlayerAscending, {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 3})
    for reverse, expected in ((False, (b"1", 1.0)), (True, (b"5", 3.0))):
        for member in (2, 3, 4):
            page = ask(store, PageAbove(str(member)), reverse=reverse, method="competition")
            assert page.members == [expected, (str(member).encode(), 2.0)]
            assert (page.first, page.before) == ((1, 0) if reverse else (0, 0))
        beside = ask(store, PageAbove("3"), reverse=reverse)
        assert beside.members == [(b"4" if reverse else b"2", 2.0), (b"3", 2.0)]


def test_a_page_of_scores_from_an_offset_on(store: Store) -> None:
    between = PageBetween(Bound("3", b"", 3), Bound("2", b"", 2), 9, offset=1)
    assert ask(store, between, reverse=True) == Page(3, 1, 1, 1, [(b"2", 2.0)])
    assert ask(store, between._replace(offset=5), reverse=True) == Page(3, 5, 0, 5, [])
