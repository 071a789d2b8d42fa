from __future__ import annotations

import pytest

from django_zrank.engine.pace import LEAST, MOST, TARGET, Pace


def slow(pace: Pace) -> Pace:
    """One that has heard of nothing but slow calls."""
    for _ in range(100):
        pace.note(MOST, 1)
    return pace


def test_the_first_call_is_a_small_one() -> None:
    assert Pace().budget == LEAST


def test_the_budget_stays_within_its_bounds() -> None:
    pace = slow(Pace())
    assert pace.budget == LEAST
    pace.note(MOST, 1e-6)
    assert pace.budget == MOST


def test_the_budget_is_what_the_target_allows() -> None:
    pace = slow(Pace())
    pace.note(2400, 2 * TARGET)
    assert pace.budget == 1200


def test_one_slow_call_among_fast_ones_changes_little() -> None:
    pace = slow(Pace())
    pace.note(2000, TARGET)
    pace.note(2000, 1)
    assert pace.budget == 1600
    pace.note(2000, TARGET)
    assert pace.budget == 2000


def test_calls_of_next_to_nothing_tell_nothing() -> None:
    pace = Pace()
    before = pace.budget
    for _ in range(100):
        pace.note(1, 1)
    assert pace.budget == before


@pytest.mark.parametrize("number", [0, 1, LEAST - 1, LEAST, LEAST + 1, 5 * LEAST])
@pytest.mark.parametrize("constant", [True, False])
def test_every_item_is_in_one_piece_in_its_turn(number: int, constant: bool) -> None:
    pace = slow(Pace())
    pace.note = lambda cost, seconds: None  # type: ignore[method-assign]
    pieces = list(pace.run(list, range(number), 1 if constant else lambda item: 1))
    assert [item for piece in pieces for item in piece] == list(range(number))
    assert all(0 < len(piece) <= LEAST for piece in pieces[: max(1, number)] if number)
    assert len(pieces) == max(1, -(-number // LEAST))


def test_pieces_are_cut_by_cost() -> None:
    pace = slow(Pace())
    pace.note = lambda cost, seconds: None  # type: ignore[method-assign]
    prices = [400, 400, 400, LEAST + 1, 1, LEAST, 1]
    pieces = list(pace.run(list, prices, lambda price: price))
    assert pieces == [[400, 400], [400], [LEAST + 1], [1], [LEAST], [1]]
    assert all(len(piece) == 1 for piece in pace.run(list, range(3), LEAST + 1))


def test_a_piece_is_sent_when_it_is_asked_for() -> None:
    """A consumer that stops in the middle has sent no more."""
    calls: list[list[int]] = []
    replies = slow(Pace()).run(calls.append, range(10 * LEAST))
    next(replies)
    assert len(calls) == 1
