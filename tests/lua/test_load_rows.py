from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.store import LOAD_LIMIT, Change, Store
from tests.builds import load_rows, shadow, start


def test_takes_as_many_rows_as_it_says(zrank: Redis, store: Store) -> None:
    start(store, "next")
    assert load_rows(store, "next", [Change(str(n), n) for n in range(LOAD_LIMIT)])
    assert zrank.zcard(shadow(store, "next")) == LOAD_LIMIT


def test_gives_way_to_a_later_rebuild(zrank: Redis, store: Store) -> None:
    start(store, "older")
    start(store, "newer")
    assert not load_rows(store, "older", [Change("1", 1)])
    assert not zrank.exists(shadow(store, "older"), shadow(store, "newer"))


def test_is_a_sign_of_life(zrank: Redis, store: Store) -> None:
    start(store, "next")
    zrank.hset(store.keys.meta, "heartbeat", 1)
    load_rows(store, "next", [Change("1", 1)])
    assert int(zrank.hget(store.keys.meta, "heartbeat")) > 10**15


@pytest.mark.parametrize(
    "layout", [PLAIN, Layout(0, True), Layout(8, True)], ids=["plain", "memberships", "tied"]
)
def test_scores_members_and_memberships_arrive_as_they_are(
    zrank: Redis, store: Store, layout: Layout
) -> None:
    scores = [2**53, -(2**53), 0.1, 1 / 3, -1e-300, 5e-324, 1.7976931348623157e308, 123456789.01234567, 0, 7]
    members = ["1", "007", "x y", 'a"b', "a\\nb\n", "\x7f\x01", "関東", "😀", "é", "-1"]
    tie = bytes([0, 34, 92, 127, 128, 255, 10, 1])[: layout.width]
    memberships = [tie + b"region:%d\0x:\xc3\xa9" % number for number in range(9)] + [tie]
    if not layout.memberships:
        memberships = [b""] * 10
    store = Store(store.name, layout)
    start(store, "next")
    assert load_rows(store, "next", list(map(Change, members, scores, memberships)))
    root = shadow(store, "next")
    stored = [tie + member.encode() for member in members]
    assert zrank.zmscore(root, stored) == scores
    assert zrank.zcard(root) == 10
    for text, member, membership, score in zip(stored, members, memberships, scores, strict=True):
        if membership:
            assert zrank.hget(f"{root}:memberships", member) == membership
        for name in filter(None, membership[len(tie) :].split(b"\0")):
            assert zrank.zscore(root.encode() + b":" + name, text) == score
