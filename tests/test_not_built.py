"""An index that was never built, or was emptied, answers no question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_zrank import RankIndex, Ranking
from django_zrank.exceptions import NotBuilt
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from tests.testapp.models import Player
from tests.without_parts.parts import PARTS

QUESTIONS: dict[str, Callable[[Any, Player], Any]] = {
    "count": lambda ranking, player: ranking.count(),
    "exists": lambda ranking, player: ranking.exists(),
    "score": lambda ranking, player: ranking.score(player),
    "rank": lambda ranking, player: ranking.rank(player),
    "in": lambda ranking, player: player in ranking,
    "counts": lambda ranking, player: ranking.counts("bio"),
    "top": lambda ranking, player: ranking.top(3),
    "recommend": lambda ranking, player: ranking.recommend(player, band=9),
    "near": lambda ranking, player: ranking.near(5, band=9),
}


class Unbuilt(RankIndex[Player]):
    model = Player
    order = ("-level",)
    facets = ("bio",)
    name = "unbuilt"


class UnbuiltInShards(Unbuilt):
    name = "unbuilt-in-shards"
    shards = 3


@pytest.fixture(params=[Unbuilt, UnbuiltInShards])
def index(request: pytest.FixtureRequest, zrank: Redis, transactional_db: None) -> type[RankIndex[Player]]:
    Player.objects.bulk_create([Player(level=level, bio="a") for level in range(30)])
    found: type[RankIndex[Player]] = request.param
    return found


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("narrowed", [False, True], ids=["all", "filtered"])
def test_every_question_is_refused(index: type[RankIndex[Player]], question: str, narrowed: bool) -> None:
    player, ask = Player.objects.all()[0], QUESTIONS[question]
    if narrowed and question == "counts" and not PARTS["combined"].is_there:
        pytest.skip("what combines filters has been deleted")

    def ranking() -> Ranking:
        return index.ranking.filter(bio="a") if narrowed else index.ranking

    with pytest.raises(NotBuilt, match=f"rebuild_zrank {index.instance().name}$"):
        ask(ranking(), player)
    rebuild(index.instance())
    ask(ranking(), player)
    store = Store.of(index.instance().holders[-1])
    store.client.delete(*store.client.keys(f"{store.keys.tag}:*"))
    if question not in ("score", "rank", "in"):  # which ask the shard of the member alone
        with pytest.raises(NotBuilt):
            ask(ranking(), player)


@pytest.mark.part("combined")
@pytest.mark.part("sql")
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_database_answers_in_its_place(
    index: type[RankIndex[Player]], question: str, settings: Any
) -> None:
    player, ask = Player.objects.all()[0], QUESTIONS[question]
    settings.ZRANK = {**getattr(settings, "ZRANK", {}), "UNHEALTHY": "database"}
    unbuilt = ask(index.ranking.filter(bio="a"), player)
    settings.ZRANK = {}
    rebuild(index.instance())
    built = ask(index.ranking.filter(bio="a"), player)
    assert len(unbuilt) == len(built) if question in ("recommend", "near") else unbuilt == built
