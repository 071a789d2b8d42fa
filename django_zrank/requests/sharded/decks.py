"""Drawing from the decks of several shards as from one.

A side of a band, the members before or after the asking one, is a deck in random order, dealt as S decks that lie side
by side. A uniform order of a union of disjoint sets is each of these in a uniform order of its own, where the set of
each next card is drawn by the number of cards it has *left*. So that one round trip does, shards are *proposed* before
anything is known of them, each as likely as every other; a proposal is accepted with the chance left / most, ``most``
being what the fullest shard has left, so that those accepted are in proportion to ``left``. Where proposals run out,
shards are drawn by these numbers, and the walk goes on: to begin again would favour what fits into one round.

Members that must not be offered are passed over: without some of its cards, a uniform order is one of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from .places import Place

__all__ = ["Deck", "Walk"]

_SLACK: Final = 2
"""Shards that are proposed for a side beyond the members that it is to give: few are refused."""

_SPARE: Final = 2
"""Random numbers beyond those needed, for the few that are drawn again so that none is favoured."""

_MOST: Final = 2000
"""Cards of a side that are asked for in one round trip."""


class Deck:
    """A side of a band in one shard, in random order as far as it has been dealt."""

    def __init__(self) -> None:
        self.full = 0
        """Members in it."""

        self.left = 0
        """Of these, those that the walk has not taken."""

        self.dealt = 0
        """The number of cards that the shard was asked for."""

        self.numbers = b""
        """The random numbers that they were dealt by."""

        self.is_known = False
        self.is_whole = False
        self.cards: list[Place | None] = []
        """Those at hand, the next one last; None for one that fails the tests."""

    def lacks(self, wanted: int) -> int:
        """The number of cards to ask for so that so many are at hand."""
        return 0 if self.is_whole else max(0, wanted - len(self.cards))

    def ask(self, count: int, rng: Random) -> tuple[int, int, bytes]:
        """The arguments that deal so many more cards: how many, how many were before, and the numbers for both."""
        if count:
            self.numbers += rng.randbytes(6 * (count + _SPARE * (not self.dealt)))
        return count, self.dealt, self.numbers

    def add(self, count: int, reply: Sequence[Any], rng: Random) -> None:
        """Take in what a shard that was asked for ``count`` cards has dealt."""
        if self.is_known and not count:
            return
        self.is_known = True
        self.full, is_whole, flat = reply
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
            # Fewer are left than were dealt where members have left the shard since the round trip before.
            self.left = max(self.full - taken, len(self.cards))


class Walk:
    """Cards of both sides, below and above the asking one, taken until there are enough."""

    def __init__(
        self,
        wanted: int,
        shards: int,
        rng: Random,
        is_offered: Callable[[Place], bool],
        *,
        reverse: bool,
        patience: Callable[[int], int],
    ) -> None:
        half = wanted // 2
        self.goals = [half, wanted - half] if reverse else [wanted - half, half]
        self.decks = [[Deck() for _ in range(shards)] for _ in self.goals]
        self.chosen: list[list[Place]] = [[] for _ in self.goals]
        self.rng = rng
        self.gave_up = False
        """True if too many failed the tests."""

        self._is_offered = is_offered
        self._known: set[bytes] = set()
        self._patience = patience
        self._failed = 0
        self._turns = 0

    @property
    def candidates(self) -> int:
        """Members in the band."""
        return sum(deck.full for side in self.decks for deck in side)

    def propose(self) -> list[list[int]]:
        """Shards to take cards from, of either side, in turn."""
        shards = range(len(self.decks[0]))
        return [self.rng.choices(shards, k=goal + _SLACK) for goal in self.goals]

    def accept(self, proposals: Iterable[Iterable[int]]) -> None:
        """Take the cards of those proposed that are accepted."""
        for side, shards in enumerate(proposals):
            for shard in shards:
                if self.rng.random() * self.most(side) < self.decks[side][shard].left:
                    self._take(side, shard)

    def most(self, side: int) -> int:
        return max(deck.left for deck in self.decks[side])

    def pick(self) -> list[list[int]]:
        """Shards to take the missing cards from, drawn by the numbers that they have left; none if there are enough.

        More are picked each time, in case many are passed over; those that aren't needed are kept.
        """
        left = [sum(deck.left for deck in side) for side in self.decks]
        lacks = [goal - len(chosen) for goal, chosen in zip(self.goals, self.chosen, strict=True)]
        for side, other in ((0, 1), (1, 0)):
            if not left[side] and left[other]:  # what one side lacks the other gives
                self.goals[side] -= lacks[side]
                self.goals[other] += lacks[side]
                lacks[side], lacks[other] = 0, lacks[other] + lacks[side]
        picks = []
        for decks, lack, total in zip(self.decks, lacks, left, strict=True):
            count = 0 if self.gave_up else min(total, lack << 2 * self._turns, max(lack, _MOST))
            counts = [deck.left for deck in decks]
            picks.append(self.rng.sample(range(len(decks)), count, counts=counts) if count else [])
        self._turns += 1
        return picks

    def wants(self, picks: Iterable[Iterable[int]]) -> dict[int, tuple[int, int]]:
        """The cards below and above that shards have to be asked for, so that all of those picked are at hand."""
        counts = [Counter(side) for side in picks]
        lacks = {
            shard: tuple(
                side[shard].lacks(count[shard]) for side, count in zip(self.decks, counts, strict=True)
            )
            for shard in sorted({*counts[0], *counts[1]})
        }
        return {shard: lack for shard, lack in lacks.items() if any(lack)}  # type: ignore[misc]

    def take(self, picks: Iterable[Iterable[int]]) -> None:
        """Take the cards of shards that were picked, until there are enough."""
        for side, shards in enumerate(picks):
            for shard in shards:
                self._take(side, shard)

    def _take(self, side: int, shard: int) -> None:
        deck = self.decks[side][shard]
        if self.gave_up or len(self.chosen[side]) >= self.goals[side]:
            return
        if not deck.cards:
            deck.left = 0  # some have left it since they were counted
            return
        card = deck.cards.pop()
        deck.left -= 1
        if card is None:
            self._failed += 1
            self.gave_up = self._failed > self._patience(self.candidates)
        elif card.stored not in self._known:
            self._known.add(card.stored)
            if self._is_offered(card):
                self.chosen[side].append(card)
