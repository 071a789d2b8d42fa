"""Whatever keys of an index are made to say, a verification finds it, and a repair leaves what a rebuild would."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import RankIndex
from django_zrank.models import Mark
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import verify
from tests.keyspace import beneath
from tests.testapp.models import Competitor, Player, Tag
from tests.testapp.zrank import CompetitorRank, PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
]


def populate() -> None:
    with disable_sync():
        Player.objects.bulk_create(Player(level=level % 4) for level in range(9))
        tags = Tag.objects.bulk_create(Tag(word=f"tag {n}") for n in range(2))
        for n in range(9):
            competitor = Competitor.objects.create(points=n % 4, region=[None, "kantou", "kansai"][n % 3])
            competitor.tags.set(tags[: n % 3])


def state(index: RankIndex, client: Redis) -> dict[str, Any]:
    return beneath(client, Store(index.name).learn().root)


def corrupt(client: Redis, root: str, lots: random.Random) -> None:
    """One command on one of the keys: what is there, or something near it, is written, removed or replaced."""
    keys = sorted(key.decode() for key in client.scan_iter(f"{root}*"))
    if not keys:
        return
    if any(key.endswith(":rankings") for key in keys):
        keys.append(f"{root}:region:mu")  # a ranking that nobody stands in
    key = lots.choice(keys)
    if lots.random() < 0.1:
        client.delete(key)
    elif client.type(key) == b"hash":
        fields: Any = client.hgetall(key)
        field = lots.choice([*sorted(fields), b"777", b"x"])
        if lots.random() < 0.5:
            client.hdel(key, field)
        else:
            client.hset(key, field, lots.choice([*sorted(fields.values()), b"3", b""]))
    else:
        others: list[Any] = [
            member for name in keys if client.type(name) == b"zset" for member in client.zrange(name, 0, -1)
        ]
        member = lots.choice([*sorted(others), b"777", b"x"])
        if lots.random() < 0.5:
            client.zrem(key, member)
        else:
            client.zadd(key, {member: lots.choice([0, 1, 2.5, float("inf")])})


@pytest.mark.parametrize("examples", [20, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "index", [PlayerAscending.instance(), CompetitorRank.instance()], ids=lambda index: index.name
)
def test_any_corruption_is_found_and_repaired(zrank: Redis, index: RankIndex, examples: int) -> None:
    populate()
    rebuild(index)
    Mark.objects.all().delete()
    right = state(index, zrank)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32), st.integers(1, 4))
    def run(seed: int, number: int) -> None:
        lots = random.Random(seed)
        for _ in range(number):
            corrupt(zrank, Store(index.name).learn().root, lots)
        was_right = state(index, zrank) == right
        assert verify(index).ok is was_right
        assert verify(index, repair=True, batch_size=4).ok
        assert state(index, zrank) == right
        roots = {key.decode().split(":")[2] for key in zrank.scan_iter(f"{Store(index.name).keys.tag}:*-*")}
        assert roots <= {Store(index.name).learn().build}

    run()


def test_what_nothing_names_goes_with_a_build_that_was_evicted(zrank: Redis) -> None:
    index = CompetitorRank.instance()
    populate()
    rebuild(index)
    root = Store(index.name).learn().root
    zrank.zadd(f"{root}:nobody", {"1": 1})
    zrank.delete(f"{root}:memberships")
    assert verify(index, repair=True).ok
    assert not list(zrank.scan_iter(f"{root}*"))
