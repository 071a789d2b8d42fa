"""Dealing at random, as ``lua/sample_nearby.lua`` does: the same numbers deal the same members. No I/O.

Where the script looks a member up when its card is dealt, here the cards that are to come are looked up all at
once, since a look-up costs a query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

__all__ = ["Card", "Dealer", "Numbers", "Side"]

_SPARE: Final = 8
_TOP: Final = 2**48


class Card(NamedTuple):
    """A member, as a sample holds it."""

    position: int
    member: bytes
    """Its primary key as text."""

    score: float
    tie: bytes = b""


class Numbers:
    """Random 48-bit numbers. So many are asked for as the store asks for, which is part of what a seed fixes."""

    def __init__(self, draw: Callable[[int], bytes], wanted: int, *, excluding: bool) -> None:
        self._draw = draw
        misses = 2 * (wanted + 17) if excluding else 0
        self._bytes = draw(6 * (wanted + misses + _SPARE))
        self.used = 0
        """The number of bytes used so far. May be set back."""

    def below(self, m: int) -> int:
        """A number below ``m``, every one equally likely: what would favour the low ones is drawn again."""
        top = _TOP - _TOP % m
        while (number := self._next()) >= top:
            pass
        return number % m

    def _next(self) -> int:
        if self.used == len(self._bytes):
            self._bytes += self._draw(6 * _SPARE)
        self.used += 6
        return int.from_bytes(self._bytes[self.used - 6 : self.used], "little")


class Side:
    """The positions ``first`` … ``last`` as a deck of cards, shuffled as far as it has been dealt.

    ``find``: the members at some positions. ``read``: all members, in the order of their positions.
    """

    def __init__(
        self,
        first: int,
        last: int,
        find: Callable[[Sequence[int]], Mapping[int, Card]],
        read: Callable[[], Iterable[Card]],
    ) -> None:
        self.first = first
        self.left = max(0, last - first + 1)
        self.find, self.read = find, read
        self.cards: Sequence[Card] | None = None
        """Once these are known, they are the deck."""

        self.misses = 0
        self._swaps: dict[int, int] = {}

    def deal(self, numbers: Numbers) -> int:
        """The next card, counted from 0: Fisher and Yates's shuffle, of which only the swaps are kept."""
        i = numbers.below(self.left)
        card = self._swaps.get(i, i)
        self.left -= 1
        self._swaps[i] = self._swaps.get(self.left, self.left)
        return card

    def peek(self, numbers: Numbers, count: int) -> list[int]:
        """The next ``count`` cards, or all that are left, without dealing them."""
        used, left, swaps = numbers.used, self.left, dict(self._swaps)
        cards = [self.deal(numbers) for _ in range(min(count, left))]
        numbers.used, self.left, self._swaps = used, left, swaps
        return cards

    def replace(self, cards: Sequence[Card]) -> None:
        self.cards, self.left, self._swaps = cards, len(cards), {}


class Dealer:
    """Chooses ``wanted`` members, none of them ``barred``."""

    def __init__(self, wanted: int, barred: Collection[bytes], numbers: Numbers) -> None:
        self.wanted, self.barred, self.numbers = wanted, barred, numbers

    def choose(self, before: Side, after: Side) -> list[Card]:
        """Half from before, with the odd one, half from after; what one side lacks the other gives."""
        # Whether a band suffices does not depend on the numbers, so the next one may use them again.
        self.numbers.used = 0
        chosen: list[Card] = []
        self._take(before, (self.wanted + 1) // 2, chosen)
        self._take(after, self.wanted - len(chosen), chosen)
        self._take(before, self.wanted - len(chosen), chosen)
        return chosen

    def _take(self, side: Side, n: int, chosen: list[Card]) -> None:
        """Many look-ups cost more than one read of a small side, and with many misses most is excluded."""
        if side.cards is None and 0 < side.left <= 8 * n:
            self._read(side, chosen)
        known: Mapping[int, Card] | None = None
        goal = len(chosen) + n
        while len(chosen) < goal and side.left:
            if side.cards is not None:
                chosen.append(side.cards[side.deal(self.numbers)])
                continue
            if known is None:
                misses = min(len(self.barred), self.wanted + 17) - side.misses
                known = side.find([side.first + at for at in side.peek(self.numbers, n + misses)])
            card = known.get(side.first + side.deal(self.numbers))
            if card is None:  # gone since it was counted: nothing here promises that reads see one state
                continue
            if card.member not in self.barred:
                chosen.append(card)
                continue
            side.misses += 1
            if side.misses > self.wanted + 16:
                self._read(side, chosen)

    def _read(self, side: Side, chosen: Sequence[Card]) -> None:
        gone = {card.member for card in chosen}
        side.replace(
            [card for card in side.read() if not (card.member in self.barred or card.member in gone)]
        )
