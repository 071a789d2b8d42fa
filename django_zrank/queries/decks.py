"""The two sides of a band, dealt at random. Cards that must not be offered are passed over: what remains of a uniform
order is uniform too."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import repeat
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

__all__ = ["SPARE", "Asked", "Card", "Deck", "Hand", "Supply"]

SPARE: Final = 8
"""Random numbers beyond one per card, in place of the few that are rejected so that every card is equally likely."""


Card: TypeAlias = tuple[float, bytes, int | None]
"""A member, in the order of members: its score, its stored form, and its rank less 1 if that was counted."""


class Asked(NamedTuple):
    """A request to a deck."""

    wanted: int
    """The number of cards that pass the tests."""

    most: int
    """The most cards that are dealt to find these."""

    skipped: int
    """The number of cards that were dealt before, by the same numbers."""

    numbers: bytes
    """Random numbers for all; none to deal in order."""


class Deck:
    """A side of a band, in random order as far as it has been dealt."""

    def __init__(self) -> None:
        self.left: int | None = None
        """Members in it that were not taken yet; None until they are counted."""

        self.cards: list[Card | None] = []
        """Cards that were dealt and not taken yet, the next one last; None for one that fails the tests."""

        self._asked = False
        self._dealt = 0
        self._numbers = b""
        self._in_order: list[Card | None] | None = None
        """The cards read so far, of a deck that is read in order; None if cards are dealt."""

    def ask(self, count: int, most: int, room: int, rng: Random) -> Asked:
        """Return what to ask so that cards are dealt until ``count`` pass the tests, ``most`` at most. Random numbers
        are for ``room`` cards: what the other side is too short for is dealt, too."""
        # At first, a side that needn't give anything may have to make up for the other.
        self._asked = count > 0 or self.left is None
        if self._asked:
            needed = 6 * (self._dealt + room + SPARE)
            self._numbers += rng.randbytes(max(0, needed - len(self._numbers)))
        return Asked(count, most, self._dealt, self._numbers if self._asked else b"")

    def ask_in_order(self, most: int) -> Asked:
        """Return what to ask so that up to ``most`` further members are read in order, for a deck of which most
        can't be offered."""
        self._asked = True
        self.read_on()
        return Asked(most, most, len(self._in_order or ()), b"")

    def read_on(self) -> None:
        """Have it read in order from now on."""
        self._in_order = self._in_order or []

    def add(self, reply: Sequence[Any], step: int, rng: Random) -> None:
        """Add what was dealt, with ``step`` words a card."""
        if not self._asked and self.left is not None:
            return
        full, extent, *flat = reply
        ranks = flat[2::step] if step == 3 else repeat(None)
        found: list[Card | None] = [
            None if stored is None else (float(score), stored, before)
            for stored, score, before in zip(flat[::step], flat[1::step], ranks)  # noqa: B905
        ]
        is_whole = extent == b"whole"
        if not is_whole and full < max(self._dealt, len(self._in_order or ())):
            # So many have left that those who were not seen yet may stand anywhere: they are read.
            self.cards, self.left, self._dealt, self._in_order = [], full, 0, []
            return
        if self._in_order is not None and not is_whole:
            self._in_order += found
            if found and len(self._in_order) < full:
                return
            found, is_whole = self._in_order, True
        if is_whole:
            # Those who were taken before are passed over.
            rng.shuffle(found)
            self.cards, self.left, self._in_order = found, len(found), None
        else:
            taken = self._dealt - len(self.cards)
            self._dealt += len(found)
            self.cards[:0] = found[::-1]
            # Members may have left the band since the last round trip.
            self.left = max(full - taken, len(self.cards))

    def keep(self, cards: Set[Card]) -> None:
        """Leave out the other cards of a deck that was read to its end."""
        self.cards = [card for card in self.cards if card in cards]
        self.left = len(self.cards)

    def giving(self) -> Deck | None:
        """Return the deck whose last card is the next one of the side; None if none has been dealt."""
        return self if self.cards else None

    def share(self, wanted: int) -> int:
        """Return the number of cards to ask for, so that ``wanted`` can be taken."""
        return max(0, (wanted if self.left is None else min(wanted, self.left)) - len(self.cards))

    @property
    def lacks(self) -> bool:
        """True if it has members that were not dealt."""
        return self.left is None or self.left > len(self.cards)

    @property
    def is_read(self) -> bool:
        """True if it is read in order, and has not been read to its end."""
        return self._in_order is not None


class Supply(Protocol):
    """A side of a band, from which a hand takes cards."""

    @property
    def left(self) -> int | None:
        """Members in it that were not taken yet; None until they are counted."""

    def giving(self) -> Deck | None:
        """Return the deck whose last card is the next one; None if that has not been dealt, or there is none."""

    def read_on(self) -> None:
        """Have it read in order from now on."""


class Hand:
    """The cards that are taken from both sides of a band, those below a member and those above it."""

    def __init__(self, wanted: int, sides: Sequence[Supply], *, reverse: bool) -> None:
        half = wanted // 2
        self.goals = (half, wanted - half) if reverse else (wanted - half, half)
        self.sides = sides
        self.taken: tuple[list[Card], list[Card]] = ([], [])
        self.failed = 0
        """Cards that failed the tests."""

    def lacks(self) -> tuple[int, int]:
        """Return the number of cards that are still to be taken from either side: one makes up for what the other
        lacks."""
        below, above = self.goals[0] - len(self.taken[0]), self.goals[1] - len(self.taken[1])
        no_below, no_above = (side.left == 0 for side in self.sides)
        if no_below and below > 0:
            above += below
        elif no_above and above > 0:
            below += above
        return 0 if no_below else max(0, below), 0 if no_above else max(0, above)

    def take(self, side: int, count: int) -> list[Card]:
        """Take up to ``count`` cards that pass the tests; fewer if those dealt run out."""
        found: list[Card] = []
        while len(found) < count and (deck := self.sides[side].giving()):
            card = deck.cards.pop()
            deck.left = (deck.left or 0) - 1
            if card is None:
                self.failed += 1
            else:
                found.append(card)
        return found
