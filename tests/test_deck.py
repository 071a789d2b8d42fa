"""Dealing: every set is equally likely, and the same numbers deal what the script deals."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_zrank.sql.deck import Card, Dealer, Numbers, Side
from tests.test_uniformity import CASES, LIMIT, Case, deviations


def side(cards: Sequence[Card], looked_up: list[int] | None = None) -> Side:
    """A side of these cards. ``looked_up`` takes down every position that is looked up."""
    by_position = {card.position: card for card in cards}

    def find(positions: Iterable[int]) -> dict[int, Card]:
        if looked_up is not None:
            looked_up.extend(positions)
        return {at: by_position[at] for at in positions if at in by_position}

    first = cards[0].position if cards else 0
    return Side(first, first + len(cards) - 1, find, lambda: cards)


def cards(pks: Iterable[int], first: int = 0) -> list[Card]:
    return [Card(at, str(pk).encode(), float(pk)) for at, pk in enumerate(pks, first)]


def barring(*pks: int) -> set[bytes]:
    return {str(pk).encode() for pk in pks}


# A deck knows no scores, so ties are nothing to it.
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for name, case in CASES.items() if not case.tied]
)
def test_every_set_is_equally_likely(case: Case) -> None:
    order = range(case.size, 0, -1)
    place, barred = order.index(case.me), barring(*case.excluded)
    before, after = cards(order[:place]), cards(order[place + 1 :], place + 1)

    def recommend(seed: int) -> list[int]:
        numbers = Numbers(random.Random(seed).randbytes, case.n, excluding=bool(barred))
        chosen = Dealer(case.n, barred, numbers).choose(side(before), side(after))
        return [int(card.member) for card in sorted(chosen)]

    assert max(deviations(case, recommend)) < LIMIT


@given(size=st.integers(1, 60), dealt=st.integers(0, 60), count=st.integers(0, 80), seed=st.integers())
def test_a_peek_tells_what_comes_and_changes_nothing(size: int, dealt: int, count: int, seed: int) -> None:
    deck, numbers = side(cards(range(size))), Numbers(random.Random(seed).randbytes, 10, excluding=False)
    first = [deck.deal(numbers) for _ in range(min(dealt, size))]
    coming = deck.peek(numbers, count)
    rest = [deck.deal(numbers) for _ in range(deck.left)]
    assert coming == rest[:count]
    assert sorted([*first, *rest]) == list(range(size))


def test_numbers_that_would_favour_somebody_are_drawn_again() -> None:
    top, one = b"\xff" * 6, (1).to_bytes(6, "little")
    assert Numbers(lambda count: (top + one).ljust(count, b"\0"), 1, excluding=False).below(3) == 1


def test_numbers_never_run_out() -> None:
    numbers = Numbers(random.Random(1).randbytes, 1, excluding=False)
    assert {numbers.below(3) for _ in range(100)} == {0, 1, 2}


def test_without_exclusions_only_what_is_drawn_is_looked_up() -> None:
    looked_up: list[int] = []
    numbers = Numbers(random.Random(1).randbytes, 4, excluding=False)
    after = side(cards(range(101, 200), 101), looked_up)
    chosen = Dealer(4, set(), numbers).choose(side(cards(range(100)), looked_up), after)
    assert sorted(looked_up) == sorted(card.position for card in chosen)


def test_what_is_gone_since_it_was_counted_is_passed_over() -> None:
    numbers = Numbers(random.Random(1).randbytes, 4, excluding=False)
    gone = Side(0, 99, lambda positions: {}, list)
    rest = cards(range(101, 200), 101)
    assert len(Dealer(4, set(), numbers).choose(gone, side(rest))) == 4
    assert Side(5, 3, lambda positions: {}, list).left == 0
