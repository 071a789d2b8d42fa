from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_zrank.engine.pace import LEAST, MOST, TARGET, Pace


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
    pieces = [len(piece) for piece in pace.run(lambda piece: (piece, TARGET / 4), range(10 * LEAST))]
    assert pieces[0] == LEAST < pieces[1] < pieces[2]


@pytest.mark.parametrize("number", [0, 1, LEAST - 1, LEAST, LEAST + 1, 5 * LEAST])
@pytest.mark.parametrize("constant", [True, False])
def test_every_item_is_in_one_piece_in_its_turn(number: int, constant: bool) -> None:
    pieces = list(Pace().run(untimed([]), range(number), 1 if constant else lambda item: 1))
    assert [item for piece in pieces for item in piece] == list(range(number))
    assert all(0 < len(piece) <= LEAST for piece in pieces[: max(1, number)] if number)
    assert len(pieces) == max(1, -(-number // LEAST))


def test_pieces_are_cut_by_cost() -> None:
    few = LEAST * 2 // 5
    prices = [few, few, few, LEAST + 1, 1, LEAST, 1]
    pieces = list(Pace().run(untimed([]), prices, lambda price: price))
    assert pieces == [[few, few], [few], [LEAST + 1], [1], [LEAST], [1]]
    assert all(len(piece) == 1 for piece in Pace().run(untimed([]), range(3), LEAST + 1))


def test_a_piece_is_sent_when_it_is_asked_for() -> None:
    """A consumer that stops in the middle has sent no more."""
    calls: list[list[int]] = []
    replies = Pace().run(untimed(calls), range(10 * LEAST))
    next(replies)
    assert len(calls) == 1
