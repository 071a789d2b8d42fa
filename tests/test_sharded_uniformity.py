"""Every set of candidates is equally likely, however unevenly they are spread over shards: shown by chi-square, and
that the check can fail."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from unittest import mock

import pytest

from django_zrank.codec.shards import shard_of
from django_zrank.queries.sampling import Draw
from django_zrank.queries.sharded import sampling
from django_zrank.queries.sharded.decks import Deck, Walk
from tests.sharded import divide
from tests.test_sharded_reads import Bare
from tests.test_uniformity import LIMIT, Side

SIZES = {"uneven": (1, 2, 5, 9, 30), "tiny": (1, 2), "one is empty": (0, 4, 4, 30)}
"""Candidates of either side in each shard."""


def play(walk: Walk, sides: Sequence[Sequence[Sequence[str]]], rng: random.Random, small: int) -> Walk:
    """Let shards that hold ``sides`` deal as ``deal_shard.lua`` does."""
    orders: dict[tuple[int, int], list[str]] = {}
    picks = walk.pick()
    while any(picks):
        wants = walk.wants(picks)
        for shard, counts in wants.items():
            replies: list[list[Any]] = []
            for side, count in enumerate(counts):
                held = sides[side][shard]
                order = orders.setdefault((side, shard), rng.sample(held, len(held)))
                _, dealt, _ = walk.decks[side][shard].ask(count, rng)
                is_whole = len(order) <= small
                cards = order if is_whole else order[dealt : dealt + count]
                flat = [word for one in cards for word in (one.encode(), b"0")]
                replies.append([len(order), len(order), b"whole" if is_whole else b"some", *flat])
            walk.add(shard, counts, [sum(full for full, *_ in replies), *replies])
        if not wants:
            walk.take(picks)
            picks = walk.pick()
    return walk


class ShareOfEach(Walk):
    """As many of each shard."""

    def pick(self) -> list[list[int]]:
        picks, count = super().pick(), len(self.decks[0])
        start = self.rng.randrange(count)
        return [[(start + at) % count for at in range(len(side))] for side in picks]

    def most(self, side: int) -> int:
        return 0


class OneShard(Walk):
    """All of one shard, chosen by what the shards have."""

    def pick(self) -> list[list[int]]:
        picks = super().pick()
        if self._proposed:
            return picks
        return [[side[0]] * self.decks[at][side[0]].left if side else [] for at, side in enumerate(picks)]

    def _accepts(self, side: int, shard: int) -> bool:
        return False


class MostIgnored(Walk):
    """Whatever is proposed is accepted."""

    def most(self, side: int) -> int:
        return 0


class Restart(Walk):
    """Begins again where proposals run out."""

    def pick(self) -> list[list[int]]:
        if not self._turns:
            return super().pick()
        if any(len(chosen) < goal for chosen, goal in zip(self.chosen, self.goals, strict=True)):
            raise TimeoutError
        return [[], []]


def deviations(
    kind: type[Walk], sizes: Sequence[int], small: int, draws: int, passed_over: int = 0
) -> tuple[float, float]:
    """The deviations from chance, in standard deviations, of the sets drawn from below, and of the shards that they
    come from."""
    rng = random.Random(1)
    numbers = iter(range(50_000))
    sides = [[[str(next(numbers)) for _ in range(size)] for size in sizes] for _ in "ab"]
    out = {
        held[at].encode()
        for side in sides
        for held in side
        for at in range(passed_over)
        if at < len(held) - 1
    }
    offered = [[one for one in held if one.encode() not in out] for held in sides[0]]
    where = {int(one): shard for shard, held in enumerate(offered) for one in held}
    drawn: list[tuple[int, ...]] = []
    while len(drawn) < draws:
        walk = kind(
            4,
            len(sizes),
            rng,
            lambda card, side: card.stored not in out,
            reverse=False,
            patience=lambda _: 0,
        )
        try:
            play(walk, sides, rng, small)
        except TimeoutError:
            continue
        drawn.append(tuple(int(card.stored) for card in walk.chosen[0]))
    shards = by_shards(drawn, where)
    return (Side(tuple(where), 2).deviation(drawn) if len(where) < 100 else shards), shards


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


CASES = [
    (sizes, small, out)
    for sizes in SIZES
    for small in (0, 16)
    for out in (0, 1)
    if sizes != "tiny" or not out
]


@pytest.mark.parametrize(("sizes", "small", "passed_over"), [("uneven", 0, 1), ("tiny", 0, 0)])
def test_every_set_is_equally_likely(sizes: str, small: int, passed_over: int) -> None:
    assert max(deviations(Walk, SIZES[sizes], small, 3_000, passed_over)) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "small", "passed_over"), CASES)
def test_every_set_is_equally_likely_in_many_draws(sizes: str, small: int, passed_over: int) -> None:
    assert max(deviations(Walk, SIZES[sizes], small, 30_000, passed_over)) < LIMIT


@pytest.mark.parametrize(
    ("kind", "draws"),
    [
        (ShareOfEach, 500),
        (OneShard, 500),
        (MostIgnored, 500),
        pytest.param(Restart, 20_000, marks=pytest.mark.slow),
    ],
)
def test_the_check_fails_for_a_wrong_walk(kind: type[Walk], draws: int) -> None:
    assert max(deviations(kind, SIZES["tiny"], 0, draws)) > LIMIT
    if kind is not Restart:  # of large shards, what fits is hardly told from what doesn't
        assert max(deviations(kind, SIZES["uneven"], 0, draws)) > LIMIT


def add(deck: Deck, count: int, full: int, *found: bytes, is_whole: bool = False, seed: int = 1) -> None:
    """Let a shard that holds ``full`` members deal ``found`` of them."""
    rng = random.Random(seed)
    deck.ask(count, rng)
    deck.add(
        count,
        [full, full, b"whole" if is_whole else b"some", *(word for one in found for word in (one, b"0"))],
        rng,
    )


def test_a_deck_counts_what_the_walk_has_not_taken() -> None:
    walk = Walk(10, 1, random.Random(1), lambda card, side: True, reverse=False, patience=lambda _: 0)
    deck = walk.decks[0][0]
    add(deck, 3, 20, b"a", b"b", b"c")
    assert deck.left == 20
    walk.take([[0, 0], []])
    add(deck, 2, 20, b"d", b"e")
    assert deck.left == 18
    walk.take([[0], []])
    assert deck.left == 17
    add(deck, 4, 2)  # all but two members have left the shard since
    assert deck.left == len(deck.cards) == 2
    assert [card.stored for card in walk.chosen[0]] == [b"a", b"b", b"c"]


def test_a_side_that_is_dealt_whole_is_shuffled() -> None:
    """The shard sends it in the order of scores."""
    orders = set()
    for seed in range(200):
        deck = Deck()
        add(deck, 1, 3, b"a", b"b", b"c", is_whole=True, seed=seed)
        orders.add(tuple(card.stored for card in deck.cards if card))
    assert len(orders) == 6


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


@pytest.mark.slow
@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("small", [0, 16])
@pytest.mark.parametrize("tied", [0, 8, 60])
def test_every_set_is_equally_likely_on_a_server(tied: int, small: int) -> None:
    """Of 95, some have the score of the one who asks: so few that cards of the other side are passed over, or so many
    that their place is searched."""
    sizes = SIZES["uneven"]
    rows = levels(sizes, tied)
    both, view = divide(Bare, len(sizes), rows), Bare.ranking.view
    order = sorted(rows, key=lambda pk: (rows[pk]["level"], str(pk)))
    me = order[len(order) // 2]
    with mock.patch.object(sampling, "_SMALL", small):
        drawn = [
            both.of_shards(Draw(str(me), 4, [(10**6, 10**6)], seed=seed), view).drawn for seed in range(8_000)
        ]
    for candidates, part in (
        (order[: len(order) // 2], slice(2)),
        (order[len(order) // 2 + 1 :], slice(2, 4)),
    ):
        pairs = [tuple(int(stored) for _, stored, _ in one[part]) for one in drawn]
        assert Side(tuple(candidates), 2).deviation(pairs) < LIMIT
        assert by_shards(pairs, {pk: shard_of(str(pk), len(sizes)) for pk in candidates}) < LIMIT
