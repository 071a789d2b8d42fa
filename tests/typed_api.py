"""The types of the public API, for mypy and pyright to read: a test runner imports nothing from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django_zrank import Entries, RankIndex, Ranking, Recommendations
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


if TYPE_CHECKING:
    assert_type(Typed.ranking, Ranking[Player])
    assert_type(Typed.ranking.filter(region="kantou").by("competition").reversed(), Ranking[Player])
    assert_type(Typed.ranking.recommend(1), Recommendations[Player])
    assert_type(Typed.ranking.recommend(1).objects(), list[Player])
    assert_type(Typed.ranking[:3], Entries[Player])
    assert_type(Typed.ranking.top()[1:].objects(), list[Player])
    assert_type(Untyped.ranking.top().objects(), list[Any])

    async def asynchronous() -> None:
        assert_type(await Typed.ranking.arecommend(1), Recommendations[Player])
        assert_type(await Typed.ranking.atop(), Entries[Player])
