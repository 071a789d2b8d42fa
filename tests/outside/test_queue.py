"""Groups of members who wait, and combined filters that many clients ask for."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.testing import sync_now
from tests.sync.conftest import declare  # noqa: F401 - a fixture
from tests.testapp.models import Competitor, Nickname
from tests.testapp.zrank import CompetitorRank, NicknameRank

pytestmark = pytest.mark.django_db(transaction=True)


def test_many_small_combinations_of_one_client_keep_nobody_from_theirs(zrank: Redis) -> None:
    """ZRANK["MAX_COMBINED_FILTERS"] is 100."""
    Competitor.objects.bulk_create(Competitor(points=at, region=str(at % 130)) for at in range(130))
    sync_now(CompetitorRank)
    for region in range(130):
        assert CompetitorRank.ranking.exclude(region=str(region)).count() == 129


@pytest.fixture
def players(zrank: Redis) -> list[int]:
    """The primary keys of many competitors, by their points; one in two is from the north."""
    rows = [Competitor(points=at, region=("north", "south")[at % 2]) for at in range(2400)]
    Competitor.objects.bulk_create(rows, batch_size=300)
    sync_now(CompetitorRank)
    return list(Competitor.objects.order_by("points").values_list("pk", flat=True))


NARROWED: dict[str, Any] = {
    "a group": lambda: CompetitorRank.ranking.filter(group="waiting"),
    "one of two groups": lambda: CompetitorRank.ranking.filter(group__in=["waiting", "elsewhere"]),
    "a facet beside it": lambda: CompetitorRank.ranking.filter(group="waiting", region="north"),
    "but for a facet": lambda: CompetitorRank.ranking.filter(group="waiting").exclude(region="south"),
    "but for a group": lambda: CompetitorRank.ranking.filter(group="waiting").exclude(group="banned"),
    "reversed": lambda: CompetitorRank.ranking.filter(group="waiting").reversed(),
}
DRAWS: dict[str, dict[str, Any]] = {
    "by score": {"band": 2400},
    "by rank": {"ranks": 2400},
    "widened": {"band": 1, "widen": (5, 2400)},
    "remembered": {"band": 2400, "remember": timedelta(minutes=1)},
}


def test_who_joins_is_drawn_at_once(players: list[int]) -> None:
    """By one who has looked before, in vain. Whether it was asked in another way makes no difference."""
    waiting = CompetitorRank.group("waiting")
    me, joiner, second = players[1200], players[0], players[2300]
    for narrowed, draw in product(NARROWED.values(), DRAWS.values()):
        require_seen_at_once(narrowed(), waiting, me, joiner, second, draw)


def test_who_joins_a_queue_of_a_large_ranking_is_drawn_at_once(zrank: Redis) -> None:
    Nickname.objects.bulk_create((Nickname(nick=str(at), score=at) for at in range(24_000)), batch_size=400)
    sync_now(NicknameRank)
    waiting, queue = NicknameRank.group("waiting"), NicknameRank.ranking.filter(group="waiting")
    for draw in ({"band": 24_000}, {"ranks": 24_000}):
        require_seen_at_once(queue, waiting, "12000", "0", "23000", draw)


@pytest.fixture
def sharded(declare: Any, players: list[int]) -> type[RankIndex]:  # noqa: F811
    """The same competitors in three shards."""
    index: type[RankIndex] = declare(
        Competitor, "-points", name="sharded-queue", facets=("region",), shards=3, tie_break="-pk"
    )
    sync_now(index)
    return index


@pytest.mark.parametrize("draw", [{"band": 2400}, {"ranks": 2400}, {"ranks": 1, "widen": (5, 2400)}], ids=str)
def test_who_joins_a_queue_in_shards_is_drawn_at_once(
    sharded: type[RankIndex], players: list[int], draw: dict[str, Any]
) -> None:
    queue, waiting = sharded.ranking.filter(group="waiting"), sharded.group("waiting")
    me, joiner, second = players[1200], players[0], players[2300]
    require_seen_at_once(queue, waiting, me, joiner, second, draw)


def test_a_band_of_ranks_in_a_queue_in_shards(sharded: type[RankIndex], players: list[int]) -> None:
    """The nearest of all shards, on either side, whether or not the asking member waits itself."""
    others = [*players[3:1200:13], *players[1205:2400:17]]
    for me, waiting in product(
        (players[1200], players[5], players[2399]), (others, others[:90], others[93:])
    ):
        group = sharded.group(f"{me}-{len(waiting)}")
        for _ in range(2):
            at = players.index(me)
            below = sorted((one for one in waiting if players.index(one) < at), key=players.index)
            above = sorted((one for one in waiting if players.index(one) > at), key=players.index)
            group.add(*waiting)
            for ranking in (sharded.ranking, sharded.ranking.reversed()):
                queue = ranking.filter(group=group.name)
                for ranks in (1, 7, 50, 2400):
                    drawn = queue.recommend(me, 200, ranks=ranks)
                    assert {entry.pk for entry in drawn} == {*below[-ranks:], *above[:ranks]}
                few = queue.recommend(me, 4, ranks=20)
                assert {entry.pk for entry in few} <= {*below[-20:], *above[:20]}
                # Who is excluded counts for the band, as everywhere.
                left = queue.recommend(me, 200, ranks=50, exclude=others[::3])
                assert {entry.pk for entry in left} == {*below[-50:], *above[:50]} - {*others[::3]}
            group.add(me)


def test_a_band_of_ranks_in_a_queue_in_shards_favours_nobody(
    sharded: type[RankIndex], players: list[int]
) -> None:
    near = [*players[1190:1200], *players[1201:1211]]
    sharded.group("waiting").add(*near, *players[::20])
    queue = sharded.ranking.filter(group="waiting")
    counts = Counter(
        entry.pk for seed in range(500) for entry in queue.recommend(players[1200], 4, ranks=10, seed=seed)
    )
    assert counts.keys() == {*near}
    expected = 500 * 4 / 20
    assert (
        sum((count - expected) ** 2 / expected for count in counts.values()) < 65
    )  # 19 degrees of freedom, p = 1e-6


def require_seen_at_once(queue: Any, waiting: Any, me: Any, joiner: Any, second: Any, draw: Any) -> None:
    def drawn() -> set[Any]:
        return {entry.pk for entry in queue.recommend(me, **draw)}

    for _ in range(2):
        assert drawn() == set()
        assert queue.count() == 0  # by a combined filter, which is kept
        waiting.add(joiner, expires=timedelta(minutes=1))
        assert drawn() == {joiner}
        waiting.add(second)
        assert drawn() == {joiner, second}
        waiting.remove(joiner)
        assert drawn() == {second}
        waiting.remove(second)
