"""Every set of candidates is equally likely, however unevenly they are spread over shards: shown by chi-square, and
that the check can fail."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from django_zrank.queries import draws
from django_zrank.queries.decks import Deck, Hand
from django_zrank.queries.draws import Draw
from django_zrank.shards.draws import Decks
from django_zrank.shards.names import shard_of
from tests.parts.shards.both import divide
from tests.parts.shards.test_reads import Bare
from tests.test_uniformity import LIMIT, Side

pytestmark = pytest.mark.usefixtures("zrank")

SIZES = {"uneven": (1, 2, 5, 9, 30), "tiny": (1, 2), "one is empty": (0, 4, 4, 30), "one": (20,)}
"""Candidates of either side in each shard."""


def levels(sizes: Sequence[int], tied: int = 0) -> dict[int, dict[str, Any]]:
    """Candidates of either side in each shard, and one who asks. ``tied``: so many in the middle have one level."""
    rows, pk, left = {}, 1, [2 * size for size in sizes]
    left[0] += 1
    while any(left):
        shard = shard_of(str(pk), len(sizes))
        if left[shard]:
            left[shard] -= 1
            rows[pk] = {"level": 0}
        pk += 1
    first = (len(rows) - tied) // 2
    for at, level in zip(random.Random(2).sample([*rows], len(rows)), range(1000), strict=False):
        rows[at]["level"] = first if first <= level < first + tied else level
    return rows


def by_shards(drawn: Iterable[Sequence[int]], where: dict[int, int]) -> float:
    """The deviation of the shards that pairs come from: of members, and of both of one shard."""
    sizes, found = (
        Counter(where.values()),
        Counter(tuple(sorted(where[one] for one in pair)) for pair in drawn),
    )
    pairs = math.comb(len(where), 2)
    expected = {
        (one, other): (math.comb(sizes[one], 2) if one == other else sizes[one] * sizes[other])
        / pairs
        * found.total()
        for one in sizes
        for other in sizes
        if one <= other
    }
    cells = {pair: count for pair, count in expected.items() if count}
    chi_square = sum((found[pair] - count) ** 2 / count for pair, count in cells.items())
    return (chi_square - (len(cells) - 1)) / math.sqrt(2 * (len(cells) - 1))


def deviations(
    sizes: Sequence[int], draws_made: int, *, tied: int = 0, excluded: int = 0, together: bool = False
) -> float:
    """The greatest deviation from chance, in standard deviations, of the pairs that are drawn from either side, and of
    the shards that they come from. ``excluded``: so many of either side may not come."""
    rows = levels(sizes, tied)
    both, view = divide(Bare, len(sizes), rows, together=together), Bare.ranking.view
    order = sorted(rows, key=lambda pk: (rows[pk]["level"], str(pk)))
    at = len(order) // 2
    me, out = order[at], {*order[:excluded], *order[len(order) - excluded :]}
    drawn = [
        both.of_shards(Draw(str(me), 4, [(10**6, 10**6)], excluded=out, seed=seed), view).drawn
        for seed in range(draws_made)
    ]
    found = []
    for side in (order[:at], order[at + 1 :]):
        candidates = [pk for pk in side if pk not in out]
        pairs = [tuple(pk for _, stored, _ in one if (pk := int(stored)) in side) for one in drawn]
        found.append(Side(tuple(candidates), 2).deviation(pairs))
        if len(sizes) > 1:
            found.append(by_shards(pairs, {pk: shard_of(str(pk), len(sizes)) for pk in candidates}))
    return max(found)


def dealing(small: int) -> AbstractContextManager[Any]:
    return mock.patch.object(draws, "LIMITS", draws.Limits(small=small))


@pytest.mark.parametrize(
    ("sizes", "small", "excluded"), [("uneven", 0, 2), ("uneven", 16, 0), ("one", 0, 0), ("one", 16, 2)]
)
@pytest.mark.parametrize("together", [True, False])
def test_every_set_is_equally_likely(sizes: str, small: int, excluded: int, together: bool) -> None:
    with dealing(small):
        assert deviations(SIZES[sizes], 600, excluded=excluded, together=together) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, 16])
@pytest.mark.parametrize(("tied", "excluded"), [(0, 0), (0, 2), (8, 0), (20, 0)])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=[*SIZES])
def test_every_set_is_equally_likely_in_many_draws(
    sizes: Sequence[int], tied: int, excluded: int, small: int, together: bool
) -> None:
    """Some have the score of the one who asks: so few that cards of the other side are passed over, or so many that
    their place is searched. 2,000 draws tell a sampler that is wrong one time in ten."""
    if sizes == SIZES["tiny"] and (tied or excluded):
        pytest.skip("too few to tie or to exclude")
    with dealing(small):
        found = deviations(sizes, 2_000, tied=tied, excluded=excluded, together=together)
    assert found < LIMIT


class Even(random.Random):
    """Chooses among shards without a look at what they have left."""

    def choices(self, population: Any, weights: Any = None, **how: Any) -> list[Any]:
        return super().choices([one for one, left in zip(population, weights, strict=True) if left])


class Impatient(Decks):
    """Gives the card of another shard where that of the chosen one has not been dealt yet."""

    def share(self, deck: Deck, wanted: int) -> int:
        return min(1, super().share(deck, wanted))

    def giving(self) -> Deck | None:
        held = {deck: deck.left for deck in self.decks if not deck.cards}
        for deck in held:
            deck.left = 0
        found = super().giving()
        for deck, left in held.items():
            deck.left = left
        return found


class Sorted(random.Random):
    """Doesn't shuffle what is dealt whole."""

    def shuffle(self, x: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("what", "wrong", "small"),
    [
        ("queries.draws.random.Random", Even, 0),
        ("shards.draws.Decks", Impatient, 0),
        ("queries.draws.random.Random", Sorted, 16),
    ],
)
def test_the_check_fails_for_a_wrong_draw(what: str, wrong: type, small: int) -> None:
    with dealing(small), mock.patch(f"django_zrank.{what}", wrong):
        assert deviations(SIZES["uneven"], 600) > LIMIT


def add(deck: Deck, count: int, full: int, *found: bytes) -> None:
    """Let a shard that holds ``full`` members deal ``found`` of them."""
    rng = random.Random(1)
    deck.ask(count, count, count, rng)
    deck.add([full, b"some", *(word for one in found for word in (one, b"0"))], 2, rng)


def test_a_deck_counts_what_was_not_taken() -> None:
    deck = Deck()
    hand = Hand(20, (deck, Deck()), reverse=False)

    def take(count: int) -> list[bytes]:
        return [stored for _, stored, _ in hand.take(0, count)]

    add(deck, 3, 20, b"a", b"b", b"c")
    assert deck.left == 20
    assert take(2) == [b"a", b"b"]
    add(deck, 2, 20, b"d", b"e")
    assert deck.left == 18
    assert take(1) == [b"c"]
    assert deck.left == 17
    add(deck, 4, 2)  # all but two members have left the shard since, perhaps those that were dealt
    assert deck.is_read
    assert deck.left == 2
