from __future__ import annotations

from django_zrank.queries.pages import Bound, Page, PageBetween
from django_zrank.store import Store
from tests.lua.conftest import ask


def test_a_page_of_scores(store: Store) -> None:
    page = ask(store, PageBetween(Bound("2.5", b"", 2.5), Bound(), 1), reverse=True, method="dense")
    assert page == Page(3, 1, 2, 0, [(b"2", 2.0)])  # a plain index keeps no distinct values
