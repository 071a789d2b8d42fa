from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.dense.checking import check_counts
from django_zrank.store import Change, Replaced, Store
from tests.builds import load_rows, start
from tests.keyspace import everything, expected, score_text

LAYOUTS = [
    Layout(beside="dense"),
    Layout(8, memberships=True, beside="dense"),
    Layout(memberships=True, beside="dense"),
]
TIES = [b"", b"\0\0\0\0\0\0\0\1", b"\0" + b"\xff" * 8]


@pytest.mark.parametrize(
    ("layout", "tie"), list(zip(LAYOUTS, TIES, strict=True)), ids=["plain", "ties", "wide"]
)
def test_every_wrong_count_is_told(zrank: Redis, layout: Layout, tie: bytes) -> None:
    members = {str(n): (n % 5 or 0.1, tie if layout.memberships else b"") for n in range(40)}
    store = Store("counts", layout)
    start(store, "built")
    load_rows(store, "built", [Change(member, *what) for member, what in members.items()])
    store.swap_rebuilt("built")
    live = store.live.root
    whole = everything(zrank, live)
    assert whole == expected(live, members, layout)

    def check() -> set[tuple[bytes, int, bytes]]:
        values = {tie + score_text(score) for score, _ in members.values()}
        for command, beside in (("HSCAN", "counts"), ("ZSCAN", "values")):
            values.update(*store.scan(command, f"{live}:{beside}"))
        checked = check_counts(store, "built", b"", sorted(values))
        assert [value for value, *_ in checked] == sorted(values)
        return {(value, right, counted) for value, right, counted, is_right in checked if not is_right}

    assert check() == set()
    zrank.hset(f"{live}:counts", tie + b"0.10000000000000001", 9)
    zrank.hdel(f"{live}:counts", tie + b"1")
    zrank.zrem(f"{live}:values", tie + b"2")
    zrank.zadd(f"{live}:values", {tie + b"3": 4, tie + b"7": 7})
    zrank.hset(f"{live}:counts", tie + b"4.0", 8)  # the same score, spelled in another way
    zrank.hset(f"{live}:counts", b"nan", 1)
    wrong = {
        (tie + b"0.10000000000000001", 8, b"9"),
        (tie + b"1", 8, b""),
        (tie + b"2", 8, b"8"),
        (tie + b"3", 8, b"8"),
        (tie + b"7", 0, b""),
        (tie + b"4.0", 0, b"8"),
        (b"nan", 0, b"1"),
    }
    assert check() == wrong
    with pytest.raises(Replaced):
        check_counts(store, "other", b"", [b"1"])
