from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.store import Change, Replaced, Store
from tests.builds import load_rows, start
from tests.keyspace import everything, expected

LAYOUT = Layout(8, memberships=True, dense=True)
TIE, OTHER = bytes(8), b"\xff" * 8
MEMBERS = {"1": (5, TIE + b"region:a\0tag:x"), "2": (5, TIE + b"region:b"), "3": (6, OTHER)}


@pytest.fixture
def store(zrank: Redis) -> Store:
    store = Store("strays", LAYOUT)
    start(store, "built")
    load_rows(store, "built", [Change(member, *what) for member, what in MEMBERS.items()])
    store.swap_rebuilt("built")
    return store


def is_whole(zrank: Redis, store: Store) -> bool:
    return everything(zrank, store.live.root) == expected(store.live.root, MEMBERS, LAYOUT)


def test_who_stands_where_the_membership_says_is_none(zrank: Redis, store: Store) -> None:
    locations = [("", TIE + b"1"), ("region:a", TIE + b"1"), ("tag:x", TIE + b"1"), ("", OTHER + b"3")]
    assert store.find_strays("built", locations, repair=True) == [None] * 4
    assert is_whole(zrank, store)


def test_nor_is_who_does_not_stand_there(store: Store) -> None:
    locations = [("region:b", TIE + b"1"), ("region", TIE + b"1"), ("region:z", TIE + b"9"), ("", b"")]
    assert store.find_strays("built", locations) == [None] * 4


def test_who_stands_elsewhere_is_told_and_taken_out(zrank: Redis, store: Store) -> None:
    live = store.live.root
    locations = [
        ("region:b", TIE + b"1"),
        ("", OTHER + b"1"),
        ("tag:x", OTHER + b"1"),
        ("new:c", TIE + b"2"),
        ("", b"7"),
    ]
    for name, stored in locations:
        zrank.zadd(f"{live}:{name}" if name else live, {stored: 2.5})
    zrank.zadd(f"{live}:rankings", {"new:c": 0})
    assert store.find_strays("built", locations) == [2.5] * 5
    assert store.find_strays("built", locations, repair=True) == [2.5] * 5
    assert store.find_strays("built", locations) == [None] * 5
    for name, _ in locations:  # nobody had counted them
        zrank.hdel(
            f"{live}:{name}:counts" if name else f"{live}:counts", TIE + b"2.5", OTHER + b"2.5", b"72.5"
        )
    assert is_whole(zrank, store)


def test_a_member_without_its_membership_stands_nowhere_rightly(zrank: Redis, store: Store) -> None:
    zrank.hdel(f"{store.live.root}:memberships", "1")
    locations = [("", TIE + b"1"), ("region:a", TIE + b"1")]
    assert store.find_strays("built", locations, repair=True) == [5, 5]
    assert not zrank.exists(f"{store.live.root}:region:a")
    assert zrank.zscore(f"{store.live.root}:rankings", "region:a") is None


def test_another_generation(store: Store) -> None:
    with pytest.raises(Replaced):
        store.find_strays("other", [("", TIE + b"1")])
