"""Drawing from the decks of several shards as from one.

A side of a band, the members before or after the asking one, is a deck in random order, dealt as S decks that lie side
by side. A uniform order of a union of disjoint sets is each of these in a uniform order of its own, where the set of
each next card is drawn by the number of cards it has *left*. So that one round trip does, shards are *proposed* before
anything is known of them, each with the same chance; a proposal is accepted with the chance left / most, where no shard
has more than ``most`` left, so that shards are accepted in proportion to ``left``. If proposals run out, the walk goes
on: to begin again would favour what fits into one round.

If all shards are asked, ``most`` is what the fullest one has left, and the walk goes on with shards drawn by these
numbers. If few are asked, those proposed and that of the asking one, ``most`` must not depend on which were proposed:
it is a bound that the number of its own shard tells, and the walk goes on with further proposals.

Members that must not be offered are passed over: without some of its cards, a uniform order is one of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from random import Random
from typing import Any, Final

from .places import Place

__all__ = ["Deck", "Walk"]

_SLACK: Final = 2
"""Shards proposed for a side beyond the number of members wanted: few proposals are refused."""

_SPARE: Final = 2
"""Random numbers beyond one a card: a few are rejected, so that every card is equally likely."""

_MOST: Final = 2000
"""Cards of a side that are asked for in one round trip."""

_FEW: Final = 200
"""If the own shard has fewer members of a side, all shards are asked: the bound would be far above what most have."""

_FEW_TURNS: Final = 3
"""Round trips in which few shards are asked; then all are."""


class Deck:
    """A side of a band in one shard, in random order as far as it has been dealt."""

    def __init__(self) -> None:
        self.span = 0
        """Members in it, with those of the other side that have the score of the member drawn for."""

        self.left = 0
        """Members in it that the walk has not taken yet."""

        self.dealt = 0
        """The number of cards that the shard was asked for."""

        self.numbers = b""
        """The random numbers that they were dealt by."""

        self.is_known = False
        self.is_whole = False
        self.cards: list[Place | None] = []
        """Cards that were dealt and not taken yet, the next one last; None for one that fails the tests."""

    def lacks(self, wanted: int) -> int:
        """The number of cards to ask for, so that ``wanted`` are dealt, or all that are left."""
        if self.is_known:
            wanted = min(wanted, self.left)
        return 0 if self.is_whole else max(0, wanted - len(self.cards))

    def ask(self, count: int, rng: Random) -> tuple[int, int, bytes]:
        """The arguments that deal ``count`` more cards: this number, the number dealt before, and random numbers for
        both."""
        if count:
            self.numbers += rng.randbytes(6 * (count + _SPARE * (not self.dealt)))
        return count, self.dealt, self.numbers

    def add(self, count: int, reply: Sequence[Any], rng: Random) -> None:
        """Add the reply of a shard that was asked for ``count`` cards."""
        if self.is_known and not count:
            return
        self.is_known = True
        full, self.span, is_whole, *flat = reply
        taken = self.dealt - len(self.cards)
        self.dealt += count
        found = [
            None if stored is None else Place(float(score), stored)
            for stored, score in zip(flat[::2], flat[1::2], strict=True)
        ]
        self.is_whole = bool(is_whole)
        if self.is_whole:
            rng.shuffle(found)
            self.cards, self.left = found, len(found)
        else:
            self.cards[:0] = found[::-1]
            # Members may have left the shard since the last round trip.
            self.left = max(full - taken, len(self.cards))


class Walk:
    """Cards of both sides, below and above a member, taken until there are enough."""

    def __init__(
        self,
        wanted: int,
        shards: int,
        rng: Random,
        is_offered: Callable[[Place, int], bool],
        *,
        reverse: bool,
        patience: Callable[[int], int],
        own: int | None = None,
    ) -> None:
        """``is_offered``: returns True if a card may be chosen for a side, 0 or 1. ``own``: the shard of the member, if
        few shards are to be asked."""
        half = wanted // 2
        self.goals = [half, wanted - half] if reverse else [wanted - half, half]
        self.decks = [[Deck() for _ in range(shards)] for _ in self.goals]
        self.chosen: list[list[Place]] = [[] for _ in self.goals]
        self.inside: dict[int, int] = {}
        """The number of members in the band, by the number of each shard that was asked."""

        self.rng = rng
        self.gave_up = False
        """True if too many failed the tests."""

        self._is_offered = is_offered
        self._own = own
        self._patience = patience
        self._failed = 0
        self._turns = 0
        self._proposed = False

    @property
    def candidates(self) -> int:
        """Members in the band; an estimate if not all shards were asked."""
        return sum(self.inside.values()) * len(self.decks[0]) // len(self.inside)

    @property
    def is_estimate(self) -> bool:
        return len(self.inside) < len(self.decks[0])

    def most(self, side: int) -> int:
        """A number of cards that no shard exceeds.

        Shards are random samples of one size: the numbers of two differ by the square root of twice their mean, and by
        seven times as much once in 10**12. In that case the shard is drawn from as if it had no more than this number.
        """
        if self._own is not None:
            span = self.decks[side][self._own].span
            return span + int(10 * sqrt(span)) + 50
        return max(deck.left for deck in self.decks[side])

    def pick(self) -> list[list[int]]:
        """Shards to take cards from, in turn, for either side; none if there are enough. They are drawn by the numbers
        of cards that they have left, or proposed while these aren't known of all.

        More are picked each time, in case many cards are passed over. Cards that aren't needed are kept.
        """
        self._proposed = self.is_estimate
        if self._turns >= _FEW_TURNS:
            self._own = None
        left = [sum(deck.left for deck in side) for side in self.decks]
        lacks = [goal - len(chosen) for goal, chosen in zip(self.goals, self.chosen, strict=True)]
        for side, other in ((0, 1), (1, 0)):
            # one side makes up for what the other lacks
            if not (self._proposed or left[side]) and left[other]:
                self.goals[side] -= lacks[side]
                self.goals[other] += lacks[side]
                lacks[side], lacks[other] = 0, lacks[other] + lacks[side]
        picks = []
        for decks, lack, total in zip(self.decks, lacks, left, strict=True):
            shards = range(len(decks))
            if self._proposed:
                count = min((lack << self._turns) + _SLACK, max(lack, _MOST)) if lack else 0
                picks.append(self.rng.choices(shards, k=count))
            else:
                count = min(total, lack << 2 * self._turns, max(lack, _MOST))
                picks.append(
                    self.rng.sample(shards, count, counts=[deck.left for deck in decks]) if count else []
                )
        self._turns += 1
        return [[], []] if self.gave_up else picks

    def wants(self, picks: Sequence[Iterable[int]]) -> dict[int, tuple[int, int]]:
        """The numbers of cards, below and above, to ask of shards before those picked can be taken."""
        counts = [Counter(side) for side in picks]
        shards = {*counts[0], *counts[1]}
        if self._own in self.inside and any(
            count and side[self._own].span < _FEW for side, count in zip(self.decks, counts, strict=True)
        ):
            self._own = None
        if self._proposed:
            shards.update(range(len(self.decks[0])) if self._own is None else [self._own])
        lacks = {
            shard: (
                self.decks[0][shard].lacks(counts[0][shard]),
                self.decks[1][shard].lacks(counts[1][shard]),
            )
            for shard in sorted(shards)
        }
        return {shard: lack for shard, lack in lacks.items() if any(lack) or shard not in self.inside}

    def add(self, shard: int, counts: tuple[int, int], reply: Sequence[Any]) -> None:
        """Add the reply of a shard that was asked for ``counts`` cards below and above."""
        self.inside[shard], *sides = reply
        for decks, count, side in zip(self.decks, counts, sides, strict=True):
            decks[shard].add(count, side, self.rng)

    def take(self, picks: Iterable[Iterable[int]]) -> None:
        """Take the cards of shards that were picked, until there are enough."""
        for side, shards in enumerate(picks):
            for shard in shards:
                if not self._proposed or self._accepts(side, shard):
                    self._take(side, shard)

    def _accepts(self, side: int, shard: int) -> bool:
        return self.rng.random() * self.most(side) < self.decks[side][shard].left

    def _take(self, side: int, shard: int) -> None:
        deck = self.decks[side][shard]
        if self.gave_up or len(self.chosen[side]) >= self.goals[side]:
            return
        if not deck.cards:
            deck.left = 0  # members have left since they were counted
            return
        card = deck.cards.pop()
        deck.left -= 1
        if card is None:
            self._failed += 1
            self.gave_up = self._failed > self._patience(self.candidates)
        elif self._is_offered(card, side):
            self.chosen[side].append(card)
