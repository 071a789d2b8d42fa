"""Draw from the decks of several shards as from one.

A side of a band (the members before or after the asking one) is dealt as one deck per shard. To deal the union of
disjoint decks in uniform order, deal each in uniform order, and choose the deck of the next card by the cards that each
has *left*. To need one round trip only, shards are *proposed* before their sizes are known, all with equal probability.
A proposal is accepted with probability left / most, where no shard has more than ``most`` cards left, so shards are
accepted in proportion to ``left``. If proposals run out, the walk goes on with shards chosen by size: starting over
would favour what fits into one round trip.

Members that must not be offered are passed over: what is left of a uniform order is uniform too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from .sort_keys import SortKey

__all__ = ["Deck", "Walk"]

_SLACK: Final = 2
"""Shards proposed for a side beyond the number of members wanted, as some proposals are rejected."""

_SPARE: Final = 2
"""Random numbers beyond one per card, as some are rejected so that every card is equally likely."""

_MOST: Final = 2000
"""The most cards of a side that are asked for in one round trip."""


class Deck:
    """A side of a band in one shard, in random order as far as it has been dealt."""

    def __init__(self) -> None:
        self.left = 0
        """Members in it that the walk has not taken yet."""

        self.dealt = 0
        """The number of cards that the shard was asked for."""

        self.numbers = b""
        """The random numbers that dealt them."""

        self.is_known = False
        self.is_whole = False
        self.cards: list[SortKey | None] = []
        """Cards dealt but not taken yet, the next one last; None for one that fails the tests."""

    def lacks(self, wanted: int) -> int:
        """Return the number of cards to ask for so that ``wanted``, or all that are left, are dealt."""
        if self.is_known:
            wanted = min(wanted, self.left)
        return 0 if self.is_whole else max(0, wanted - len(self.cards))

    def ask(self, count: int, rng: Random) -> tuple[int, int, bytes]:
        """Return the arguments that deal ``count`` more cards: this number, the number dealt before, and random numbers
        for both."""
        if count:
            self.numbers += rng.randbytes(6 * (count + _SPARE * (not self.dealt)))
        return count, self.dealt, self.numbers

    def add(self, count: int, reply: Sequence[Any], rng: Random) -> None:
        """Add the reply of a shard that was asked for ``count`` cards."""
        if self.is_known and not count:
            return
        self.is_known = True
        full, _, extent, *flat = reply
        taken = self.dealt - len(self.cards)
        self.dealt += count
        found = [
            None if stored is None else SortKey(float(score), stored)
            for stored, score in zip(flat[::2], flat[1::2], strict=True)
        ]
        self.is_whole = extent == b"whole"
        if self.is_whole:
            rng.shuffle(found)
            self.cards, self.left = found, len(found)
        else:
            self.cards[:0] = found[::-1]
            # Members may have left the shard since the last round trip.
            self.left = max(full - taken, len(self.cards))


class Walk:
    """Cards taken from both sides, below and above a member, until there are enough."""

    def __init__(
        self,
        wanted: int,
        shards: int,
        rng: Random,
        is_offered: Callable[[SortKey, int], bool],
        *,
        reverse: bool,
        patience: Callable[[int], int],
        most: int = _MOST,
    ) -> None:
        """``is_offered``: returns True if a card may be chosen for a side, 0 or 1. ``most``: the most cards of a side
        that are asked for in one round trip."""
        half = wanted // 2
        self.goals = [half, wanted - half] if reverse else [wanted - half, half]
        self.decks = [[Deck() for _ in range(shards)] for _ in self.goals]
        self.chosen: list[list[SortKey]] = [[] for _ in self.goals]
        self.inside: dict[int, int] = {}
        """The number of members in the band, by the number of the shard, for those asked."""

        self.rng = rng
        self.gave_up = False
        """True if too many failed the tests."""

        self._is_offered = is_offered
        self._most = min(most, _MOST)
        self._patience = patience
        self._failed = 0
        self._turns = 0
        self._proposed = False

    @property
    def candidates(self) -> int:
        """Members in the band."""
        return sum(self.inside.values())

    def most(self, side: int) -> int:
        """Return a number of cards that no shard exceeds."""
        return max(deck.left for deck in self.decks[side])

    def pick(self) -> list[list[int]]:
        """Return the shards to take cards from, in turn, for either side; none if there are enough. They are chosen by
        the cards that each has left, or proposed while these numbers aren't known for all.

        Each time more are picked, in case many cards are passed over. Cards that aren't needed are kept.
        """
        self._proposed = len(self.inside) < len(self.decks[0])
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
                count = min((lack << self._turns) + _SLACK, self._most) if lack else 0
                picks.append(self.rng.choices(shards, k=count))
            else:
                count = min(total, lack << 2 * self._turns, self._most)
                picks.append(
                    self.rng.sample(shards, count, counts=[deck.left for deck in decks]) if count else []
                )
        self._turns += 1
        return [[], []] if self.gave_up else picks

    def wants(self, picks: Sequence[Iterable[int]]) -> dict[int, tuple[int, int]]:
        """Return the numbers of cards, below and above, to ask shards for before the picked ones can be taken."""
        counts = [Counter(side) for side in picks]
        shards = {*counts[0], *counts[1]}
        if self._proposed:
            shards.update(range(len(self.decks[0])))
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
        """Take cards of the picked shards until there are enough."""
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
