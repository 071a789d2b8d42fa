"""Reading a large key in pieces finds all that stays, once, whatever comes and goes between two of them."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from redis import Redis

from django_zrank.store import Store, verifying
from django_zrank.store.scans import Members

STAYS = {b"%03d" % n: float(n % 5) for n in range(90)}
"""Many have the same score."""


@pytest.fixture
def key(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(verifying, "_PIECE", 8)
    key = Store("read").keys.at("g").root
    zrank.zadd(key, STAYS)
    return key


def read(store: Store) -> list[tuple[bytes, float]]:
    return [found for pieces in store.scan("g", [""]) for _, one in pieces for found in one]


@pytest.mark.parametrize("most", [0, 3, 40])
def test_what_stays_is_found_once(zrank: Redis, key: str, most: int) -> None:
    """``most``: members that come or go between two pieces, at either end; more than a piece, too."""
    rng, send = random.Random(most), Store.send
    store = Store("read")

    def sent(request: object) -> list[object]:
        for member in (b"%s%03d" % (rng.choice([b"!", b"0", b"~"]), rng.randrange(50)) for _ in range(most)):
            if not zrank.zrem(key, member):
                zrank.zadd(key, {member: rng.choice([-1, 0, 2, 9])})
        return send(store, request)  # type: ignore[arg-type]

    store.send = sent  # type: ignore[method-assign, assignment]
    for _ in range(5):
        found = Counter(one for one in read(store) if one[0] in STAYS)
        assert found == Counter(dict.fromkeys(STAYS.items(), 1))


def test_pieces_that_went_missing_are_read_again(zrank: Redis, key: str) -> None:
    """All that was read leaves: what follows has moved to where reading began."""
    scan = Store("read").scan("g", [""])
    ((_, first),) = next(scan)
    zrank.zrem(key, *dict(first))
    rest = [found for pieces in scan for _, one in pieces for found in one]
    assert {*first, *rest} == {*STAYS.items()}


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols(zrank: Redis, key: str, protocol: int) -> None:
    given = zrank.connection_pool.connection_kwargs
    call = Members().call(key, 50)
    with Redis(given["host"], given["port"], protocol=protocol) as client:
        found, following = Members().take(
            client.execute_command(call.command, *call.keys, *call.arguments), 50
        )
    in_order = sorted(STAYS.items(), key=lambda one: (one[1], one[0]))
    assert found == in_order[:50]
    assert following == Members(49, (in_order[49][1], in_order[49][0]))
