from __future__ import annotations

from redis import Redis

from django_zrank.codec.facets import Facet
from django_zrank.codec.layout import Layout
from django_zrank.queries.counts import CountFacet
from django_zrank.store import Change, Store
from tests.builds import load_rows, start
from tests.writes import apply_changes, begin_write

from .conftest import ask

REGION, NOTHING = (Facet((path,), (), many=False) for path in ("region", "nothing"))


def test_the_reply(zrank: Redis) -> None:
    store = Store("counted", Layout(memberships=True))
    start(store, "b")
    rows = [
        Change("1", 5, b"region,x:a,b\0region:a"),
        Change("2", 6, b"region:a"),
        Change("3", 6, b"region:b"),
    ]
    load_rows(store, "b", rows)
    store.swap_rebuilt("b")
    assert ask(store, CountFacet(REGION)) == {b"region:a": 2, b"region:b": 1}
    assert ask(store, CountFacet(NOTHING)) == {}
    apply_changes(store, begin_write(store), [Change("3", None)])
    assert ask(store, CountFacet(REGION)) == {b"region:a": 2}
