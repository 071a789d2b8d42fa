"""Pages beside a member, while members move between shards' round trips."""

from __future__ import annotations

from unittest import mock

import pytest

from django_zrank.queries.pages import PageAt, PageBeside
from django_zrank.shards import queries
from django_zrank.shards.queries import over_shards
from tests.parts.shards.both import divide
from tests.testapp.zrank import PlayerRank

pytestmark = pytest.mark.usefixtures("zrank")


@pytest.mark.parametrize("is_after", [True, False])
@pytest.mark.parametrize("shards", [2, 3, 7])
def test_a_page_of_several_round_trips_over_shards(shards: int, is_after: bool) -> None:
    rows = {pk: {"level": pk // 2} for pk in range(1, 81)}
    both, view = divide(PlayerRank, shards, rows), PlayerRank.ranking.view
    everybody = [stored for stored, _ in both.of_whole(PageAt(0, 80), view).members]
    moves = {80: -5, 1: 90, 60: -6, 21: 91, 22: 0, 79: 5, 3: 92}
    left = [*moves.items()]

    def move(rounds: int) -> None:
        if left:
            pk, score = left.pop()
            both.whole.client.zadd(both.shards.own(str(pk)).root, {str(pk): score})

    question = PageBeside(20.0, b"40", 60, is_after)
    with mock.patch.object(queries, "_AT_ONCE", 4):
        page = both.run(over_shards(question, view, both.shards), move)
    assert both.rounds >= len(moves)
    steady = [str(pk).encode() for pk in rows if pk not in moves]
    at = everybody.index(b"40")
    expected = [one for one in (everybody[at:] if is_after else everybody[:at]) if one in steady]
    assert [stored for stored, _ in page.members if stored in steady] == expected
