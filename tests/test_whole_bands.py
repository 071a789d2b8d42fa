"""Draws from bands of which most is excluded: they are read as a whole, in several round trips."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank.queries.request import Request
from django_zrank.redis import scripts
from django_zrank.redis.executor import Executor
from tests.populations import fill
from tests.scripts import variants
from tests.test_uniformity import Uniform

SIZE = 3203
ME = 1602
ABOVE = range(1801, 3002, 200)
BELOW = range(201, 1402, 200)
"""Those who may come: seven better ones, and seven worse ones. Each side is too large to be read at once."""

EXCLUDED = [pk for pk in range(1, SIZE + 1) if pk not in {*ABOVE, *BELOW, ME}]


@pytest.fixture
def crowd(zrank: Redis) -> Any:
    fill(Uniform, {pk: pk for pk in range(1, SIZE + 1)})
    return Uniform.ranking


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What is sent to Redis from now on."""
    sent: list[Request] = []
    send = Executor.send
    monkeypatch.setattr(Executor, "send", lambda self, request: sent.append(request) or send(self, request))
    return sent


def drawn(ranking: Any, n: int, **how: Any) -> list[int]:
    how = {"ranks": SIZE, "exclude": EXCLUDED, **how}
    return [entry.pk for entry in ranking.recommend(ME, n, **how)]


def test_members_that_cross_the_end_of_a_band_move_no_others_into_it(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The band is read in several round trips."""
    send = Executor.send

    def moving(self: Executor, request: Request) -> Any:
        replies = send(self, request)
        if request.calls[0].command in variants(scripts.DEAL):
            crowd.store.client.zadd(crowd.store.live.root, {"1": SIZE + 1})
        return replies

    monkeypatch.setattr(Executor, "send", moving)
    beyond = ME + 1501
    found = drawn(crowd, 20, ranks=None, band=1500, exclude=set(EXCLUDED) - {beyond})
    assert set(found) == {*ABOVE, *BELOW}


def test_they_are_read_in_few_round_trips(crowd: Any, requests: list[Request]) -> None:
    """The last one who may come is found, without a look-up for each."""
    assert drawn(crowd, 50) == [*reversed(ABOVE), *reversed(BELOW)]
    assert len(requests) <= 5


def test_a_large_band_of_which_many_are_excluded_is_not_read(zrank: Redis, requests: list[Request]) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 20_001)})
    requests.clear()
    excluded = [pk for pk in range(1, 20_001) if pk % 4]
    found = [
        entry.pk for entry in Uniform.ranking.recommend(10_000, 10, band=10**5, exclude=excluded, seed=1)
    ]
    assert len(set(found)) == 10
    assert not {*found} & {*excluded}
    assert len(requests) <= 4
