"""Draws over shards: who may be drawn, and that all are equally likely."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_zrank.queries import draws as drawing
from django_zrank.queries.draws import Draw
from django_zrank.queries.pages import PageAt
from django_zrank.queries.positions import Locate
from django_zrank.queries.view import View
from django_zrank.shards.queries import over_shards
from tests.parts.shards.both import COUNTS, Both, divide
from tests.parts.shards.test_reads import ROWS, START, Bare, Tied, Wide, levels, quick, rankings
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.usefixtures("zrank")

distances = st.tuples(st.integers(0, 4), st.integers(0, 4) | st.integers(0, 100))


@st.composite
def draws(draw: st.DrawFn) -> tuple[Both, Any, Draw]:
    """Rows in shards and in one piece, a ranking of them, and a draw from it."""
    index = draw(st.sampled_from([*ROWS]))
    rows = draw(ROWS[index].filter(bool))
    both = divide(index, draw(st.sampled_from(COUNTS)), rows, together=draw(st.booleans()))
    measure = draw(st.sampled_from(["exact" if index is Wide else "score", "ranks"]))
    ranking = draw(rankings(both, index, rows))
    members = st.sampled_from([*rows])
    me = draw(members)
    excluded: list[Any] = draw(st.lists(members, max_size=20))
    if excluded and index is not Wide and draw(st.booleans()):
        excluded.append(me)
    else:
        excluded = [str(one) for one in excluded]
    bands = draw(st.lists(distances, min_size=1, max_size=3, unique=True))
    question = Draw(
        str(me), draw(st.integers(1, 12)), bands, measure, frozenset(excluded), None, draw(st.integers())
    )
    (located,) = both.of_whole(Locate([str(me)]), View(ranking.view.layout)).found
    known = [None, (located.score, located.stored), (located.score + 1, located.stored)]
    return both, ranking, question._replace(sort_key=draw(st.sampled_from(known)))


def sides_of(both: Both, ranking: Any, draw: Draw, band: tuple[Any, Any]) -> list[list[bytes]]:
    """Members of a band below and above the asking one, lowest first, excluded ones too."""
    view, decode = ranking.view, ranking.index.ordering.decode
    page = both.of_whole(PageAt(0, 1000), replace(view, reverse=False, method="ordinal"))
    (me,) = both.of_whole(Locate([draw.member]), View(view.layout)).found
    order = [(score, stored) for stored, score in page.members]
    sides = [
        [sort_key for sort_key in order if sort_key < (me.score, me.stored)],
        [sort_key for sort_key in order if sort_key > (me.score, me.stored)],
    ]
    below, above = band
    if draw.measure == "ranks":
        sides = [sides[0][-below:] if below else [], sides[1][:above]]
    else:
        mine = decode(me.score, view.layout.split(me.stored)[0])[0]

        def distance(sort_key: tuple[float, bytes]) -> int:
            return abs(decode(sort_key[0], view.layout.split(sort_key[1])[0])[0] - mine)

        sides = [
            [sort_key for sort_key in side if distance(sort_key) <= most]
            for side, most in zip(sides, band, strict=True)
        ]
    return [[stored for _, stored in side] for side in sides]


@pytest.mark.part("groups")
@quick
@given(case=draws(), small=st.sampled_from([0, 16]))
def test_who_is_drawn_stands_in_the_band_and_is_ranked_right(
    case: tuple[Both, Any, Draw], small: int
) -> None:
    both, ranking, draw = case
    view, wanted = ranking.view, draw.wanted
    with ExitStack() as patched:
        patched.enter_context(mock.patch.object(drawing, "LIMITS", drawing.Limits(small=small)))
        if PARTS["combined"].is_there:
            patched.enter_context(mock.patch("django_zrank.combined.draws._SMALL", small))
        sample = both.of_shards(draw, view)
    out = {str(one) for one in draw.excluded}

    def offered(side: Sequence[bytes]) -> list[bytes]:
        return [stored for stored in side if view.layout.split(stored)[1].decode() not in out]

    for band in draw.bands:
        sides = sides_of(both, ranking, draw, band)
        below, above = map(offered, sides)
        if len(below) + len(above) >= wanted:
            break
    assert sample.band == draw.bands.index(band)
    chosen = [stored for _, stored, _ in sample.drawn]
    assert len(set(chosen)) == len(chosen) == min(wanted, len(below) + len(above))
    assert set(chosen) <= {*below, *above}
    first, second = (above, below) if view.reverse else (below, above)
    half = (wanted + 1) // 2
    assert len({*chosen} & {*first}) == min(len(first), max(half, wanted - len(second)))
    if chosen and len(both.shards.keys) > 1:
        assert not sample.is_ranked  # ranks are counted when they are used
    if view.ranking is None:
        return
    members = [view.layout.split(stored)[1].decode() for stored in chosen]
    locations = both.of_whole(Locate(members), view)
    assert sample.candidates == len(sides[0]) + len(sides[1])
    assert [score for score, *_ in sample.drawn] == [one.score for one in locations.found]
    size, found = both.of_shards(Locate(members, [card[:2] for card in sample.drawn]), view)
    assert (size, [one.before for one in found]) == (
        locations.size,
        [one.before for one in locations.found],
    )


def drawn(sample: Any) -> list[str]:
    return [stored.decode() for _, stored, _ in sample.drawn]


def test_round_trips_are_counted() -> None:
    both, view = divide(Bare, 16, levels(3000, 1)), Bare.ranking.view
    rounds = []
    for seed in range(40):
        both.of_shards(Draw("1500", 10, [(1000, 1000)], seed=seed), view.by("ordinal"))
        rounds.append(both.rounds)
    assert rounds.count(2) > 30
    assert max(rounds) <= 3
    assert both.of_shards(Draw("none", 10, [(1000, 1000)]), view) is None
    assert both.rounds == 1


def hour() -> Any:
    """What ``remember`` asks for."""
    from django_zrank.remember.memory import remembering

    return remembering(timedelta(hours=1))


def test_the_place_that_the_caller_knows_saves_a_round_trip() -> None:
    both, view = divide(Bare, 3, levels(3000, 1)), Bare.ranking.view.by("ordinal")
    question = Draw("1500", 10, [(1000, 1000)], seed=1)
    expected = both.of_shards(question, view)
    rounds = both.rounds
    assert both.of_shards(question._replace(sort_key=(1500.0, b"1500")), view) == expected
    assert both.rounds == rounds - 1
    assert both.of_shards(question._replace(sort_key=(1400.0, b"1500")), view) == expected
    assert both.rounds == rounds + 1
    assert both.of_shards(question._replace(member="none", sort_key=(1500.0, b"none")), view) is None
    assert both.rounds == 2


@pytest.mark.part("remember")
def test_those_remembered_are_avoided_whatever_the_caller_knows() -> None:
    both, view = divide(Bare, 3, levels(3000, 1)), Bare.ranking.view.by("ordinal")
    question = Draw("1500", 10, [(1000, 1000)], seed=1, avoiding=hour())
    first = drawn(both.of_shards(question._replace(sort_key=(1500.0, b"1500")), view))
    assert not {*first} & {*drawn(both.of_shards(question._replace(sort_key=(1.0, b"1500")), view))}


def test_where_most_are_excluded_each_round_asks_for_more() -> None:
    both, view = divide(Bare, 3, levels(3000, 1)), Bare.ranking.view.by("ordinal")
    excluded = {pk for pk in range(1, 3001) if pk % 200}
    sample = both.of_shards(Draw("7", 15, [(10**6, 10**6)], excluded=excluded, seed=1), view)
    assert sorted(map(int, drawn(sample))) == list(range(200, 3001, 200))
    assert both.rounds <= 9
    sample = both.of_shards(Draw("7", 10, [(10**6, 10**6)], excluded={*range(1, 1500)}, seed=1), view)
    assert len(sample.drawn) == 10
    assert both.rounds <= 6


@pytest.mark.parametrize("measure", ["score", "ranks"])
def test_the_same_seed_draws_the_same_members(measure: str) -> None:
    both, view = divide(Bare, 7, levels(500, 1)), Bare.ranking.view
    draws = [Draw("250", 6, [(100, 100)], measure, seed=seed) for seed in (1, 1, 2)]
    first, second, third = (drawn(both.of_shards(draw, view)) for draw in draws)
    assert first == second != third


def test_wide_bands_of_ranks_end_where_they_should() -> None:
    both, view = divide(Bare, 3, levels(2000, 3)), Bare.ranking.view.by("ordinal")
    for reverse in (False, True):
        sample = both.of_shards(Draw("1000", 1000, [(300, 400)], "ranks"), replace(view, reverse=reverse))
        assert sample.candidates == len(sample.drawn) == 700
        found = both.of_whole(Locate(["1000", *drawn(sample)]), replace(view, reverse=reverse)).found
        places = [one.position - found[0].position for one in found[1:]]
        back, ahead = (400, 300) if reverse else (300, 400)
        assert sorted(places) == [*range(-back, 0), *range(1, ahead + 1)]


@pytest.mark.part("remember")
def test_those_drawn_are_remembered_and_come_again_when_nobody_else_is_left() -> None:
    both, view = divide(Bare, 3, levels(9, 1)), Bare.ranking.view
    draw = Draw("5", 3, [(9, 9)], avoiding=hour())
    first, second = drawn(both.of_shards(draw, view)), drawn(both.of_shards(draw, view))
    assert len({*first, *second}) == 6
    third = drawn(both.of_shards(draw, view))
    assert len(set(third)) == 3
    assert {*first, *second, *third} == {*map(str, range(1, 10))} - {"5"}
    assert set(third[2:]) <= {*first}
    own = both.shards.own("5")
    assert both.whole.client.zcard(own.beside("remembered", "5")) == 8


@pytest.mark.part("remember")
def test_those_remembered_come_again_once_however_many_bands_are_tried() -> None:
    both, view = divide(Bare, 3, levels(9, 1)), Bare.ranking.view
    draw = Draw("5", 6, [(2, 2), (3, 3)], avoiding=hour())
    for _ in range(3):
        assert sorted(drawn(both.of_shards(draw, view))) == ["2", "3", "4", "6", "7", "8"]


@pytest.mark.part("combined", "groups")
def test_who_fails_the_tests_too_often_is_read_from_the_combined_filter() -> None:
    rows = {
        pk: {"points": 0, "joined": None, "region": "a" if pk % 100 else "b", "platform": "x"}
        for pk in range(1, 1001)
    }
    both = divide(Tied, 3, rows)
    both.add_to_group("left", [str(pk) for pk in rows if pk % 200 != 1])
    ranking: Any = Tied.ranking.filter(region="a").exclude(group="left")
    with mock.patch.multiple("django_zrank.combined.draws", _PATIENCE=(20, 20), _READ=0):
        sample = both.of_shards(Draw("500", 5, [(0, 0)]), ranking.view)
    made = [
        one for keys in both.shards.keys for one in both.whole.client.keys(f"{keys.tag}:combined_filter:*")
    ]
    assert made
    assert sorted(int(stored[9:]) for _, stored, _ in sample.drawn) == [1, 201, 401, 601, 801]


def test_whoever_moves_before_the_deal_is_drawn_for_once_more() -> None:
    both, view = divide(Bare, 3, levels(90, 1)), Bare.ranking.view.by("ordinal")
    own, question = both.shards.own("7"), Draw("7", 4, [(5, 5)])

    def move(rounds: int) -> None:
        if rounds == 1:
            both.whole.client.zadd(own.root, {"7": 50})

    sample = both.run(over_shards(question, view, both.shards), move)
    assert {abs(50 - score) <= 5 for score, *_ in sample.drawn} == {True}
    assert both.rounds == 4
    assert "7" not in drawn(sample)


def test_one_who_asks_from_outside_a_filter_is_drawn_for_again_only_if_it_moves() -> None:
    rows = {
        pk: {"points": pk, "joined": None, "region": "a" if pk % 2 else "b", "platform": "x"}
        for pk in range(1, 91)
    }
    both, ranking = divide(Tied, 3, rows), Tied.ranking.filter(region="a").by("ordinal")
    question = Draw("40", 4, [(9, 9)])
    assert len(both.of_shards(question, ranking.view).drawn) == 4
    assert both.rounds == 2
    own = both.shards.own("40").root

    def move(rounds: int) -> None:
        if rounds == 1:
            ((stored, _),) = [one for one in both.whole.client.zscan_iter(own) if one[0].endswith(b"40")]
            both.whole.client.zadd(own, {stored: 70})

    sample = both.run(over_shards(question, ranking.view, both.shards), move)
    assert {abs(70 - score) <= 9 for score, *_ in sample.drawn} == {True}


def test_members_of_a_side_leave_between_two_rounds() -> None:
    both, view = divide(Bare, 3, levels(300, 1)), Bare.ranking.view.by("ordinal")
    excluded = {str(pk) for pk in range(1, 301) if pk % 50}
    question = Draw("150", 5, [(300, 300)], excluded=excluded)

    def leave(rounds: int) -> None:
        for keys in both.shards.keys:
            both.whole.client.zremrangebyrank(keys.root, 0, 4)

    sample = both.run(over_shards(question, view, both.shards), leave)
    assert both.rounds < 30
    assert len(set(drawn(sample))) == len(sample.drawn)
    assert not {*drawn(sample)} & {*excluded}


def test_who_moves_between_two_round_trips_is_drawn_once() -> None:
    """Those drawn in the first one have other tie bytes by the second."""
    rows = {
        pk: {"points": 5, "joined": START + timedelta(days=pk), "region": None, "platform": None}
        for pk in range(1, 121)
    }
    both, view = divide(Tied, 2, rows), Tied.ranking.view.by("ordinal")
    split = view.layout.split
    question = Draw("120", 30, [(0, 0)], "score", {str(pk) for pk in range(1, 80)}, None, 0)

    def move(rounds: int) -> None:
        for keys in both.shards.keys:
            held = both.whole.client.zrange(keys.root, 0, -1)
            ties = [split(stored)[0] for stored in held]
            moved = {tie + split(stored)[1]: 5 for tie, stored in zip(reversed(ties), held, strict=True)}
            both.whole.client.delete(keys.root)
            both.whole.client.zadd(keys.root, moved)

    answer = both.run(over_shards(question, view, both.shards), move)
    members = [split(stored)[1] for _, stored, _ in answer.drawn]
    assert both.rounds > 2
    assert len({*members}) == len(members) > 20


def test_most_of_a_side_leave_between_two_rounds() -> None:
    """The other side makes up for them, and those that stay are found."""
    both, view = divide(Bare, 1, levels(3000, 1)), Bare.ranking.view.by("competition")
    excluded = {str(pk) for pk in range(1, 3001) if pk % 30}
    question = Draw("1500", 90, [(3000, 3000)], excluded=excluded, seed=3)
    keys = both.whole.live

    def leave(rounds: int) -> None:
        if rounds == 2:
            both.whole.client.zremrangebyscore(keys.root, 1501, 2900)

    sample = both.run(question.steps(view, keys), leave)
    assert both.rounds > 2
    found = {*drawn(sample)}
    assert {str(pk) for pk in range(30, 1500, 30)} | {str(pk) for pk in range(2910, 3001, 30)} <= found
    assert not found & excluded


@pytest.mark.parametrize("wanted", [1, 3])
def test_the_best_member_takes_one_round_trip(wanted: int) -> None:
    """The other side makes up for the one that is empty."""
    both, view = divide(Bare, 1, levels(300, 1)), Bare.ranking.view.by("competition")
    for reverse in (True, False):
        sample = both.of_whole(Draw("300", wanted, [(99, 99)], seed=1), replace(view, reverse=reverse))
        assert len(sample.drawn) == wanted
        assert both.rounds == 1
