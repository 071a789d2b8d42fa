from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.exceptions import NotBuilt
from django_zrank.store import Place, Store


def test_the_reply(store: Store) -> None:
    assert store.places(["3", "9", "1"], reverse=True, method="ordinal") == (
        3,
        [Place(0, 0, b"3", 3.0), None, Place(2, 2, b"1", 1.0)],
    )
    assert store.places(["3"], reverse=False, method="competition") == (3, [Place(2, 2, b"3", 3.0)])
    assert store.places([], reverse=False, method="ordinal") == (3, [])


def test_an_index_that_is_not_there(zrank: Redis, store: Store) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        store.places(["1"], reverse=True, method="ordinal")
