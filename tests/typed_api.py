"""The types of the public API, for mypy and pyright to read: a test runner imports nothing from here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rest_framework.permissions import IsAdminUser

from django_zrank import Entries, Entry, RankIndex, Ranking, Recommendations
from django_zrank.groups import Group
from django_zrank.rest_framework import IsOwner, LeaderboardViewSet, RecommendationViewSet, ScoreViewSet
from django_zrank.scores import Scores
from tests.testapp.models import Player

if TYPE_CHECKING:
    from typing import assert_type


class Typed(RankIndex[Player]):
    model = Player
    order = ("-level",)

    def get_excluded(self, player: Player) -> Iterable[Any]:  # any name will do for the parameter
        return player.friends.all()


class Untyped(RankIndex):
    model = Player
    order = ("-level",)


class Opponents(RecommendationViewSet):
    index = Typed
    permission_classes = [~IsAdminUser]
    member_permission_classes = [IsOwner | IsAdminUser]
    max_band = (50, 100)


class Board(LeaderboardViewSet):
    index = Typed
    pagination_class = None
    max_age = None
    keep_counts = None


class Changes(ScoreViewSet):
    permission_classes = [IsOwner]


if TYPE_CHECKING:
    assert_type(Typed.ranking, Ranking[Player])
    assert_type(Typed.ranking.filter(region="kantou").by("competition").reversed(), Ranking[Player])
    assert_type(Typed.ranking.recommend(1), Recommendations[Player])
    assert_type(Typed.ranking.recommend(1).objects(), list[Player])
    assert_type(Typed.ranking[:3], Entries[Player])
    assert_type(Typed.ranking.top()[1:].objects(), list[Player])
    assert_type(Typed.ranking.top()[0], Entry)
    assert_type(Typed.ranking.top()[0].rank, int | None)
    assert_type(Typed.ranking.ranks([1]), dict[Any, int | None])
    assert_type(Typed.ranking.counts("region"), dict[Any, int])
    assert_type(Typed.scores, Scores)
    assert_type(Typed.scores.increment(1), int | Decimal)
    assert_type(Typed.scores.increment(Player(), 5, key="a"), int | Decimal)
    assert_type(Typed.scores.increment({1: 5}), dict[Any, int | Decimal])
    assert_type(Typed.scores.submit(1, Decimal("7.5")), int | Decimal)
    assert_type(Typed.scores.touch([1, 2]), None)
    assert_type(Typed.scores.limit, int)
    assert_type(Typed.group("show"), Group)
    assert_type(Typed.group("show").add([1, 2], expires=timedelta(hours=1)), int)
    assert_type(Typed.group("show").clear(), None)
    assert_type(1 in Typed.group("show"), bool)
    assert_type(len(Typed.group("show")), int)
    assert_type(list(Typed.group("show")), list[Any])  # primary keys
    assert_type(Untyped.ranking.top().objects(), list[Any])

    async def asynchronous() -> None:
        assert_type(await Typed.ranking.arecommend(1), Recommendations[Player])
        assert_type(await Typed.ranking.atop(), Entries[Player])
        assert_type(await Typed.scores.aincrement(1), int | Decimal)
        assert_type(await Typed.scores.aincrement({1: 5}, key="a"), dict[Any, int | Decimal])
        assert_type(await Typed.scores.asubmit(1, 5), int | Decimal)
        assert_type(await Typed.group("show").aremove(1, 2), int)
        async for entry in Typed.ranking:
            assert_type(entry, Entry)
        assert_type([pk async for pk in Typed.group("show")], list[Any])
