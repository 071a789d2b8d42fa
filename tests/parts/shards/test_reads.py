"""Reads over shards: the same answers as from one sorted set."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_zrank import RankIndex
from django_zrank.methods import methods
from django_zrank.queries.pages import PageAbove, PageAround, PageAt, PageBeside, PageBetween
from django_zrank.queries.positions import Locate, Placements, PositionByCommand
from django_zrank.queries.view import View
from django_zrank.shards import queries
from django_zrank.shards.queries import over_shards
from tests.parts.shards.both import COUNTS, Both, divide
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Player, Ticket
from tests.without_parts.parts import PARTS

START = datetime(2026, 1, 1, tzinfo=UTC)


class Bare(RankIndex):
    name = "divided-bare"
    model = Player
    order = ("-level",)
    ranking_method = KEEPING


class Tied(RankIndex):
    """Two criteria, and facets."""

    name = "divided-tied"
    model = Competitor
    order = ("-points", "joined")
    ranking_method = KEEPING
    facets = ("region", "platform")


class Wide(RankIndex):
    """Integers beyond what a score holds exactly."""

    name = "divided-wide"
    model = Ticket
    order = ("integer",)
    ranking_method = KEEPING


few, many = st.integers(0, 3), st.integers(-50, 50)
pks = st.integers(1, 10**6)
ROWS: dict[type[RankIndex], st.SearchStrategy[Any]] = {
    Bare: st.dictionaries(pks, st.fixed_dictionaries({"level": few | many}), max_size=60),
    Tied: st.dictionaries(
        pks,
        st.fixed_dictionaries(
            {
                "points": few,
                "joined": st.sampled_from([None, START, START + timedelta(days=1)]),
                "region": st.sampled_from("ab"),
                "platform": st.sampled_from("xy"),
            }
        ),
        max_size=60,
    ),
    Wide: st.dictionaries(
        st.uuids(), st.fixed_dictionaries({"integer": few | few.map(lambda n: 2**60 + n)}), max_size=40
    ),
}
# Each example fills two indexes.
quick = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def rankings(draw: st.DrawFn, both: Both, index: type[RankIndex], rows: dict[Any, Any]) -> Any:
    """A ranking of rows in shards and in one piece, of all members or some, by any method and in either direction."""
    ranking: Any = index.ranking
    if index is Tied:
        both.add_to_group("left", [str(pk) for pk in rows if pk % 3])
        narrowed = [ranking, ranking.filter(region="a")]
        if PARTS["combined"].is_there:
            narrowed += [ranking.filter(region="a", group="left"), ranking.exclude(platform="x")]
        ranking = draw(st.sampled_from(narrowed))
    ranking = ranking.by(draw(st.sampled_from([*methods])))
    if draw(st.booleans()):
        ranking = ranking.reversed()
    return ranking


@st.composite
def cases(draw: st.DrawFn) -> tuple[Both, View, list[str], list[Any]]:
    """Rows in shards and in one piece, a view of them, and some members and scores to ask for."""
    index = draw(st.sampled_from([*ROWS]))
    rows = draw(ROWS[index])
    both = divide(index, draw(st.sampled_from(COUNTS)), rows, together=draw(st.booleans()))
    ranking = draw(rankings(both, index, rows))
    members = draw(st.lists(st.sampled_from([*rows, *(draw(st.lists(pks, max_size=2)) or [7])]), max_size=8))
    scores = [draw(few | many) for _ in "ab"]
    bounds = [ranking._bound("score", score) for score in sorted(scores, reverse=ranking.view.reverse)]
    return both, ranking.view, [str(one) for one in members], bounds


@pytest.mark.usefixtures("zrank")
@quick
@given(case=cases())
def test_ranks_are_those_of_one_ranking(case: tuple[Both, View, list[str], list[Any]]) -> None:
    both, view, members, _ = case
    question = Locate(members)
    size, found = both.of_shards(question, view)
    expected = both.of_whole(question, view)
    if view.method != "ordinal":  # positions tell the order, and nothing else
        there = [(one, other) for one, other in zip(found, expected.found, strict=True) if other]
        assert [one.stored for one, _ in sorted(there, key=lambda pair: pair[0].position)] == [
            other.stored for _, other in sorted(there, key=lambda pair: pair[1].position)
        ]
        found = [
            one and one._replace(position=other.position)
            for one, other in zip(found, expected.found, strict=True)
        ]
    assert (size, found) == expected


@pytest.mark.usefixtures("zrank")
@quick
@given(case=cases())
def test_placements_are_those_of_one_ranking(case: tuple[Both, View, list[str], list[Any]]) -> None:
    both, view, members, _ = case
    if view.ranking is None:
        return
    for member in members:
        question = Placements(member, ["region", "platform"])
        found, expected = both.of_shards(question, view), both.of_whole(question, view)
        # Positions are those in the member's own shard.
        found = [
            one._replace(location=one.location._replace(position=other.location.position))
            for one, other in zip(found, expected, strict=True)
        ]
        assert found == expected


@pytest.mark.usefixtures("zrank")
@quick
@given(case=cases(), first=st.integers(0, 70), limit=st.integers(0, 70))
def test_pages_are_those_of_one_ranking(
    case: tuple[Both, View, list[str], list[Any]], first: int, limit: int
) -> None:
    both, view, members, bounds = case
    at = PageAt(first, limit)
    assert both.of_shards(at, view) == both.of_whole(at, view)
    with mock.patch.object(queries, "NEAR", 0):
        assert both.of_shards(at, view) == both.of_whole(at, view)
    for member in members[:2]:
        around = PageAround(member, limit)
        assert both.of_shards(around, view) == both.of_whole(around, view)
        (placed,) = both.of_whole(Locate([member]), view).found
        for is_after in (True, False) if placed else ():
            for score in (placed.score, placed.score - 1, placed.score + 1):  # those that have left it, too
                beside = PageBeside(score, placed.stored, 1 + limit, is_after)
                assert both.of_shards(beside, view) == both.of_whole(beside, view)
        above = PageAbove(member)
        assert both.of_shards(above, view) == both.of_whole(above, view)
    for offset in (0, first):
        between = PageBetween(*bounds, limit, offset)
        assert both.of_shards(between, view) == both.of_whole(between, view)


def levels(count: int, each: int) -> dict[Any, dict[str, Any]]:
    """Members of whom so many have one level."""
    return {pk: {"level": pk // each} for pk in range(1, count + 1)}


@pytest.mark.part("dense")
@pytest.mark.usefixtures("zrank")
def test_round_trips_are_counted() -> None:
    both, view = divide(Bare, 16, levels(6000, 50)), Bare.ranking.view.by("ordinal")
    both.of_shards(PositionByCommand("7"), view)
    assert both.rounds == 2
    position = both.of_whole(PositionByCommand("7"), view)
    for sort_key, rounds in ((0.0, b"7"), 1), ((1.0, b"7"), 3):
        assert both.of_shards(PositionByCommand("7", sort_key), view) == position
        assert both.rounds == rounds
        located = Locate(["7"], [sort_key], checked=True)
        assert both.of_shards(located, view.by(KEEPING)).found[0].before == 120
        assert both.rounds == rounds
    assert both.of_shards(PositionByCommand("none", (0.0, b"none")), view) is None
    both.of_shards(PageAt(0, 10), view)
    assert both.rounds == 1
    both.of_shards(PageAround("3777", 10), view)
    assert both.rounds == 2
    for method, rounds in (("ordinal", 1), ("competition", 2)):
        both.of_shards(PageBeside(3777.0, b"3777", 10, is_after=True), view.by(method))
        assert both.rounds == rounds
    for method, rounds in (("ordinal", 2), ("competition", 3)):
        both.of_shards(PageAbove("3777"), view.by(method))
        assert both.rounds == rounds
    for first in (1500, 3000, 5985):
        page = both.of_shards(PageAt(first, 20), view)
        assert 3 <= both.rounds <= 5
        assert page == both.of_whole(PageAt(first, 20), view)
    for method in ("ordinal", "competition"):
        both.of_shards(Placements("3777"), view.by(method))
        assert both.rounds == 2
    members = [str(pk) for pk in range(1, 26)]
    both.of_shards(Locate(members), view)
    assert both.rounds == 2
    both.of_shards(Locate(members), view.by(KEEPING))
    assert both.rounds == 2


@pytest.mark.part("dense")
@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("reverse", [False, True])
def test_distinct_values_are_read_in_pieces(reverse: bool) -> None:
    both = divide(Bare, 3, levels(300, 3))
    view, question = replace(Bare.ranking.view, reverse=reverse), Locate(["1", "150", "299"])
    expected = [one.before for one in both.of_whole(question, view).found]
    with mock.patch("django_zrank.shards.values._VALUES", 7):
        assert [one.before for one in both.of_shards(question, view).found] == expected
    assert both.rounds > 10


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("left", [0, 20, 70])
def test_members_leave_while_a_deep_page_is_looked_for(left: int) -> None:
    view = Bare.ranking.view.by("ordinal")
    for rounds in range(1, 5):
        both = divide(Bare, 3, levels(300, 1))
        with mock.patch.object(queries, "NEAR", 0):

            def leave(rounds: int, last: int = rounds, both: Any = both) -> None:
                for keys in both.shards.keys if rounds == last else ():
                    both.whole.client.zremrangebyrank(keys.root, left, -1)

            answer = both.run(over_shards(PageAt(200, 5), view, both.shards), leave)
        assert both.rounds < 20
        found = [int(stored) for stored, _ in answer.members]
        assert found == sorted(found, reverse=view.reverse)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("moves", [1, 2])
def test_who_moves_between_two_rounds_is_located_once_more(moves: int) -> None:
    """After the second time, what stands before the sort key that it has left is taken, itself included."""
    both, view = divide(Bare, 3, levels(30, 1)), Bare.ranking.view.by("ordinal")
    own, client = both.shards.own("7"), both.whole.client

    def move(rounds: int) -> None:
        if rounds % 2 and rounds // 2 < moves:
            client.zadd(own.root, {"7": 100 + rounds})

    def moving(query: Any) -> Any:
        answer = both.run(query, move)
        assert both.rounds == 4
        return answer

    (found,) = moving(over_shards(Locate(["7"]), view, both.shards)).found
    assert (found.position, found.score) == (moves - 1, 101)
    client.zadd(own.root, {"7": 7})
    page = moving(over_shards(PageAround("7", 3), view, both.shards))
    assert page.first == 0
    client.zadd(own.root, {"7": 7})
    page = moving(over_shards(PageAbove("7"), view, both.shards))
    assert (page.first, page.members) == [(0, [(b"7", 101.0)]), (0, [(b"7", 103.0), (b"7", 101.0)])][
        moves - 1
    ]
    client.zadd(own.root, {"7": 7})
    (placed,) = moving(over_shards(Placements("7"), view, both.shards))
    assert (placed.location.before, placed.better, placed.location.score) == (moves - 1, moves - 1, 101)
