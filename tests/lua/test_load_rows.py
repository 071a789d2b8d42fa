from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.store import LOAD_LIMIT, Change, Store


def test_takes_as_many_rows_as_it_says(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    assert store.load_rows("next", [Change(str(n), n) for n in range(LOAD_LIMIT)])
    assert zrank.zcard(store.keys.shadow) == LOAD_LIMIT


def test_a_member_written_since_the_start_stays_as_written(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    store.apply_changes(store.begin_write(), [Change("1", 10), Change("2", None)])
    assert store.load_rows("next", [Change("1", 1), Change("2", 2), Change("3", 3)])
    assert zrank.zrange(store.keys.shadow, 0, -1) == [b"3", b"1"]


def test_gives_way_to_a_later_rebuild(zrank: Redis, store: Store) -> None:
    store.start_rebuild("older")
    store.start_rebuild("newer")
    assert not store.load_rows("older", [Change("1", 1)])
    assert not zrank.exists(store.keys.shadow)


def test_is_a_sign_of_life(zrank: Redis, store: Store) -> None:
    store.start_rebuild("next")
    zrank.hset(store.keys.meta, "seen", 1)
    store.load_rows("next", [Change("1", 1)])
    assert int(zrank.hget(store.keys.meta, "seen")) >= int(zrank.hget(store.keys.meta, "started"))


@pytest.mark.parametrize(
    "layout", [PLAIN, Layout(0, True), Layout(8, True)], ids=["plain", "entries", "tied"]
)
def test_scores_members_and_entries_arrive_as_they_are(zrank: Redis, store: Store, layout: Layout) -> None:
    scores = [2**53, -(2**53), 0.1, 1 / 3, -1e-300, 5e-324, 1.7976931348623157e308, 123456789.01234567, 0, 7]
    members = ["1", "007", "x y", 'a"b', "a\\nb\n", "\x7f\x01", "関東", "😀", "é", "-1"]
    tie = bytes([0, 34, 92, 127, 128, 255, 10, 1])[: layout.width]
    entries = [tie + b"region:%d\0x:\xc3\xa9" % number for number in range(9)] + [tie]
    if not layout.entries:
        entries = [b""] * 10
    store = Store(store.name, layout)
    store.start_rebuild("next")
    assert store.load_rows("next", list(map(Change, members, scores, entries)))
    shadow = store.keys.shadow
    stored = [tie + member.encode() for member in members]
    assert zrank.zmscore(shadow, stored) == scores
    assert zrank.zcard(shadow) == 10
    for text, member, entry, score in zip(stored, members, entries, scores, strict=True):
        if entry:
            assert zrank.hget(f"{shadow}:entries", member) == entry
        for name in filter(None, entry[len(tie) :].split(b"\0")):
            assert zrank.zscore(shadow.encode() + b":" + name, text) == score
