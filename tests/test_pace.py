from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from typing import Any

import pytest

from django_zrank.requests.pace import LEAST, MOST, TARGET, Pace


def learnt(seconds: float) -> Pace:
    """One that has heard of nothing but calls of ``MOST`` that took so long."""
    pace = Pace()
    for _ in range(100):
        pace.note(MOST, seconds)
    return pace


def untimed(pieces: list[Any]) -> Callable[[list[Any]], tuple[list[Any], float]]:
    """A call that keeps its pieces, and doesn't know how long it took."""

    def call(piece: list[Any]) -> tuple[list[Any], float]:
        pieces.append(piece)
        return piece, 0

    return call


def test_the_first_call_is_a_small_one() -> None:
    assert Pace().budget == LEAST


def test_the_budget_stays_within_its_bounds() -> None:
    assert learnt(1).budget == LEAST
    assert learnt(1e-6).budget == MOST


def test_the_budget_is_what_the_target_allows() -> None:
    assert learnt(TARGET * MOST / 1200).budget == pytest.approx(1200, abs=1)


def test_it_grows_and_shrinks_within_some_calls() -> None:
    pace, budgets = Pace(), [LEAST]
    for _ in range(10):
        pace.note(pace.budget, pace.budget / 3000 * TARGET)
        budgets.append(pace.budget)
    assert budgets == sorted(budgets)
    assert budgets[1] < 3000 / 2 < budgets[3] < 2990 > budgets[-1] > 2900
    pace.note(3000, 3 * TARGET)
    assert 2000 < pace.budget < 2500


def test_calls_of_next_to_nothing_tell_nothing() -> None:
    pace = Pace()
    for _ in range(100):
        pace.note(1, 1e-9)
        pace.note(MOST, 0)
    assert pace.budget == LEAST


def test_calls_tell_what_they_took() -> None:
    pace = Pace()
    pieces = [
        sum(map(len, piece))
        for piece in pace.run(lambda piece: (piece, TARGET / 4), [(1, range(10 * LEAST))])
    ]
    assert pieces[0] == LEAST < pieces[1] < pieces[2]


@pytest.mark.parametrize("number", [0, 1, LEAST - 1, LEAST, LEAST + 1, 5 * LEAST])
@pytest.mark.parametrize("groups", [1, 7])
def test_every_item_is_in_one_piece_in_its_turn(number: int, groups: int) -> None:
    items = [(1, range(number * part // groups, number * (part + 1) // groups)) for part in range(groups)]
    pieces = [list(chain.from_iterable(piece)) for piece in Pace().run(untimed([]), items)]
    assert list(chain.from_iterable(pieces)) == list(range(number))
    assert all(0 < len(piece) <= LEAST for piece in pieces[: max(1, number)] if number)
    assert len(pieces) == max(1, -(-number // LEAST))


def test_pieces_are_cut_by_cost() -> None:
    few = LEAST * 2 // 5
    groups = [(few, "abc"), (LEAST + 1, "de"), (1, "f"), (LEAST, "g"), (1, "hi")]
    pieces = list(Pace().run(untimed([]), groups))
    assert pieces == [["ab"], ["c"], ["d"], ["e"], ["f"], ["g"], ["hi"]]


def test_a_group_is_cut_where_the_piece_is_full() -> None:
    pieces = list(Pace(4, 4).run(untimed([]), [(1, "abc"), (2, "def"), (1, "")]))
    assert pieces == [["abc"], ["de"], ["f"]]


def test_a_piece_is_cut_by_one_budget_whatever_another_thread_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = count(10)
    monkeypatch.setattr(Pace, "budget", property(lambda pace: next(budgets)))
    pieces = [piece for piece, _ in Pace().pieces([(1, range(33))])]
    assert pieces == [[range(10)], [range(10, 21)], [range(21, 33)]]
