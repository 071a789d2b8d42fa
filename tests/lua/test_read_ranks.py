from __future__ import annotations

from django_zrank.queries.positions import Locate, Location
from django_zrank.store import Store

from .conftest import ask


def test_the_reply(store: Store) -> None:
    assert ask(store, Locate(["3", "9", "1"]), reverse=True) == (
        3,
        [Location(0, 0, b"3", 3.0), None, Location(2, 2, b"1", 1.0)],
    )
    assert ask(store, Locate(["3"]), method="competition") == (3, [Location(2, 2, b"3", 3.0)])
    assert ask(store, Locate([])) == (3, [])
