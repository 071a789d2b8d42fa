"""Dealing by SQL: every set is equally likely, and few members are looked up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from django_zrank.sql.rows import Row
from django_zrank.sql.sampling import Dealt, Side, choose
from tests.test_uniformity import CASES, LIMIT, MANY_DRAWS, Case, deviation_of


def side(cards: Sequence[Dealt], looked_up: list[int] | None = None) -> Side:
    """A side of these cards. ``looked_up`` notes every position that is looked up."""
    by_position = dict(cards)

    def find(positions: Sequence[int]) -> list[Dealt]:
        if looked_up is not None:
            looked_up.extend(positions)
        return [(at, by_position[at]) for at in positions if at in by_position]

    return Side(range(cards[0][0], cards[-1][0] + 1) if cards else range(0), find)


def cards(pks: Iterable[int], first: int = 0) -> list[Dealt]:
    return [(at, Row(pk, (pk,), float(pk), b"", str(pk).encode())) for at, pk in enumerate(pks, first)]


# A side knows no scores, so ties make no difference.
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for name, case in CASES.items() if not case.tied]
)
def test_every_set_is_equally_likely(case: Case) -> None:
    order = range(case.size, 0, -1)
    position, barred = order.index(case.me), {str(pk).encode() for pk in case.excluded}
    before, after = side(cards(order[:position])), side(cards(order[position + 1 :], position + 1))

    def recommend(seed: int) -> list[int]:
        chosen = choose(before, after, case.n, barred, random.Random(seed))
        return [row.pk for _, row in sorted(chosen)]

    assert deviation_of(case, recommend, MANY_DRAWS) < LIMIT


def test_of_a_large_side_few_are_looked_up() -> None:
    looked_up: list[int] = []
    before, after = cards(range(100)), cards(range(101, 200), 101)
    chosen = choose(side(before, looked_up), side(after, looked_up), 4, set(), random.Random(1))
    assert {position for position, _ in chosen} < set(looked_up)
    assert len(looked_up) == 8


def test_what_is_gone_since_it_was_counted_is_passed_over() -> None:
    gone, rest = Side(range(100), lambda positions: []), side(cards(range(101, 200), 101))
    assert len(choose(gone, rest, 4, set(), random.Random(1))) == 4


def test_an_empty_side_is_not_read() -> None:
    empty = Side(range(5, 5), lambda positions: pytest.fail("read"))
    assert len(choose(empty, side(cards(range(50))), 4, set(), random.Random(1))) == 4
