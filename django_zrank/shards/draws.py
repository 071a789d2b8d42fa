"""Draws from several shards as if they were one.

To deal the union of decks in uniform order, each is dealt in uniform order, and the one that gives the next card is
chosen by the number of cards that each has left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import ceil, sqrt
from random import Random
from typing import Any, Final

from ..queries.decks import Deck, Hand
from ..queries.draws import Draw, Drawing, Ends, Table
from ..queries.request import Call
from ..queries.steps import Steps, one, together
from ..queries.view import View
from ..redis.keys import Keys
from ..redis.scripts import Script
from .members import Shards

__all__ = ["DEAL_TOGETHER", "Decks", "DrawingTogether", "Moved", "ShardedDrawing", "drawing_over_shards"]

DEAL_TOGETHER: Final = Script("deal_together", __package__ or "")

_COST: Final = 10
"""Microseconds that it takes to find the band in one shard."""


class Moved(Exception):
    """The member no longer has the sort key that the caller gave."""


class Decks:
    """A side of a band in several shards: a deck of each."""

    def __init__(self, decks: Sequence[Deck], rng: Random) -> None:
        self.decks, self._rng = decks, rng
        self._next: Deck | None = None
        """The deck that gives the next card."""

    @property
    def left(self) -> int | None:
        lefts = [deck.left for deck in self.decks]
        return None if None in lefts else sum(lefts)  # type: ignore[arg-type]

    def giving(self) -> Deck | None:
        while True:
            deck, self._next = self._next or self._choose(), None
            if deck is None or deck.cards:
                return deck
            if deck.lacks:
                self._next = deck  # whoever it deals next
                return None

    def _choose(self) -> Deck | None:
        """Return the deck that gives the next card; None if all are empty."""
        lefts = [deck.left or 0 for deck in self.decks]
        return self._rng.choices(self.decks, lefts)[0] if any(lefts) else None

    def read_on(self) -> None:
        for deck in self.decks:
            deck.read_on()

    def share(self, deck: Deck, wanted: int) -> int:
        """Return the number of cards to ask a deck for, so that the side hardly ever lacks any of ``wanted``."""
        total, mean = self.left, wanted / len(self.decks)
        if total is not None and deck.left is not None:
            mean = wanted * deck.left / (total or 1)
        return deck.share(min(wanted, ceil(mean + 2 * sqrt(mean))))


class DrawingTogether(Drawing):
    """A draw that is under way: one script deals from all shards, and looks up the asking member."""

    def __init__(self, draw: Draw, view: View, shards: Shards, at: tuple[float, bytes] | None) -> None:
        """``at``: the position to draw around, in place of that of the member."""
        super().__init__(draw, view, shards.own(draw.member or ""), at)
        self._rankings = shards.rankings(view.ranking or "")
        self._at = 0 if draw.member is None else shards.of(draw.member) + 1
        """The number of the shard of the asking member, from 1."""

    @property
    def _tells_ranks(self) -> bool:
        return False

    def _deal(self, keys: Keys, arguments: Sequence[Any], cost: int) -> Steps[Any]:
        cost += _COST * len(self._rankings)
        return one(Call(DEAL_TOGETHER, self._rankings, (*arguments[1:], self._at), cost))


class ShardedDrawing(Drawing):
    """A draw that is under way: each shard deals cards. A base class of others, before the class of the draws of a
    view."""

    def __init__(
        self,
        draw: Draw,
        view: View,
        shards: Shards,
        me: tuple[float, bytes],
        *,
        check: bool,
        ends: Callable[[int], Steps[Ends]] | None,
    ) -> None:
        """``me``: the asking member, or what would stand there. ``check``: raise ``Moved`` if it has another sort key.
        ``ends``: finds the ends of a band of ranks, by its number; None if bands are of scores."""
        super().__init__(draw, view, shards.own(draw.member or ""), me)
        self.shards, self._find_ends = shards, ends
        if check:
            self._standing = "checked"

    def _begin(self) -> Hand:
        own = None if self.draw.member is None else self.keys
        self._tables = [Table(keys, is_own=keys is own) for keys in self.shards.keys]
        self._sides = [
            Decks(decks, self._rng) for decks in zip(*(table.decks for table in self._tables), strict=True)
        ]
        return Hand(self.draw.wanted, self._sides, reverse=self.view.reverse)

    def _ends_of(self, band: int) -> Steps[Ends]:
        """Return the ends of a band. If it is one of ranks, and all its members are read, each shard returns those of
        its own that may be in the band, and the nearest of all shards are kept."""
        if not self._find_ends:
            return self._given_ends(band)
        if not self.read_at_once:
            return (yield from self._find_ends(band))
        ends = self._given_ends(band)
        asked = [[deck.ask_in_order(self.read_at_once) for deck in table.decks] for table in self._tables]
        yield from together(
            [self._ask(table, ends, some) for table, some in zip(self._tables, asked, strict=True)]
        )
        for is_above, (side, count) in enumerate(zip(self._sides, self.draw.bands[band], strict=True)):
            cards = sorted((card for deck in side.decks for card in deck.cards if card), reverse=not is_above)
            nearest = set(cards[: int(count)])
            for deck in side.decks:
                deck.keep(nearest)
        return ends

    def _dealing(self, ends: Ends, lacks: Sequence[int], more: int) -> Steps[None]:
        wants = [(table, self._wants(table, lacks, more)) for table in self._tables]
        several = [self._ask(table, ends, asked) for table, asked in wants if asked]
        if len(several) == 1:
            yield from several[0]
        else:
            yield from together(several)

    @property
    def _inside(self) -> int:
        return sum(table.inside or 0 for table in self._tables)

    def _share(self, table: Table, side: int, wanted: int) -> int:
        return self._sides[side].share(table.decks[side], wanted)

    @property
    def _barred_here(self) -> int:
        return -(-self._barred // len(self._tables))

    @property
    def _tells_ranks(self) -> bool:
        return False

    def _deal(self, keys: Keys, arguments: Sequence[Any], cost: int) -> Steps[Any]:
        reply = yield from super()._deal(keys, arguments, cost)
        if reply[0] == b"moved":
            raise Moved
        return reply


@cache
def drawing_over_shards(drawing: type[Drawing] | None) -> type[ShardedDrawing]:
    """Return the class of draws over shards that are otherwise those of ``drawing``; None for the usual ones."""
    if drawing is None:
        return ShardedDrawing
    return type(f"Sharded{drawing.__name__}", (ShardedDrawing, drawing), {})
