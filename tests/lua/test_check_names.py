from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.store import Change, Replaced, Store
from tests.builds import load_rows, start


def test_the_registry_against_the_rankings(zrank: Redis) -> None:
    store = Store("names", Layout(memberships=True))
    start(store, "built")
    load_rows(store, "built", [Change("1", 1, b"a:1\0a:2\0b:1"), Change("2", 2, b"a:3")])
    store.swap_rebuilt("built")
    names = [b"a:1", b"a:2", b"a:3", b"b:1", b"gone:1", b"never:1"]
    assert store.check_names("built", names) == []
    rankings = f"{store.live.root}:rankings"
    zrank.zrem(rankings, "a:1")
    zrank.zadd(rankings, {"a:2": 3, "gone:1": 0})
    wrong = [b"a:1", b"a:2", b"gone:1"]
    assert store.check_names("built", names) == wrong
    assert store.check_names("built", names, repair=True) == wrong
    assert store.check_names("built", names) == []
    assert zrank.zrange(rankings, 0, -1, withscores=True) == [(name, 0) for name in sorted([*names[:4]])]
    with pytest.raises(Replaced):
        store.check_names("other", names)
