"""Random members near one member."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache, partial
from itertools import chain
from os import urandom
from typing import Any, Final, NamedTuple, Protocol

from ..codec.units import Number
from ..iteration import halves
from ..redis import scripts
from ..redis.keys import Keys
from .decks import SPARE, Asked, Card, Deck, Hand
from .request import Blocking, Call, Request
from .steps import Steps, one, together
from .view import View

__all__ = [
    "LIMITS",
    "Avoiding",
    "Draw",
    "Drawing",
    "Ends",
    "Limits",
    "Point",
    "Sample",
    "Table",
]

_SIDE: Final = struct.Struct("<3I")
"""The numbers that go to a side before its random ones."""

_LONG: Final = 8
"""The multiple of what a side lacks that is dealt before a large one is read."""

_RANKED_AT_ONCE: Final = 25
"""The most members whose ranks are searched for among ties in the round trip that draws them."""

_MOST_TRIED: Final = 5000
"""The most members that are tested by the database."""

Ends = tuple[str, bytes]
"""The ends of a band as ``deal.lua`` takes them: the measure, and the band."""


class Sample(NamedTuple):
    """Members drawn at random."""

    band: int
    """The number of the band that was used, from 0."""

    candidates: int | None
    """Members in that band, including excluded ones, without the asking one; None if they were not counted."""

    drawn: Sequence[Card]

    is_ranked: bool
    """True if the cards tell the ranks."""


class Where(NamedTuple):
    """A condition on rows."""

    passing: Callable[[Iterable[bytes]], set[bytes]]
    """Returns those of some primary keys, as they are stored, that pass; by one query or a few."""

    rows: Any
    """The queryset of all rows that pass."""


class Point(NamedTuple):
    """A position that members are drawn around, whether or not a member stands there."""

    score: float
    stored: bytes
    """The stored form of a member there."""

    values: tuple[Any, ...]
    """The values of all criteria, or a score alone."""

    is_score: bool
    """True for the position ahead of all members with a score."""


class Avoiding(Protocol):
    """Members that a draw passes over unless no others are left, as a part keeps them."""

    def reading(self, keys: Keys, member: str) -> Call:
        """Return the call that reads their primary keys, in the round trip that deals first. The last are offered
        first."""

    def drawn(self, keys: Keys, member: str, members: Sequence[bytes]) -> Steps[None]:
        """Called with the primary keys of those that were drawn, if there are any."""


class Draw(NamedTuple):
    """Draw random distinct members near a member; None if that is not ranked."""

    member: str | None
    """The asking member; None for nobody, if a position is given."""

    wanted: int

    bands: Sequence[tuple[Number, Number]]
    """Distances below and above, tried in turn."""

    measure: str = "score"
    """The unit of distances: "score"; "exact", scores that may lie beyond 2**53; "ranks"."""

    excluded: Set[int] | Set[str] = frozenset()
    """Primary keys to pass over: integers, or any keys as text."""

    avoiding: Avoiding | None = None
    """Members to pass over unless no others are left."""

    seed: int | str | bytes | None = None
    """The same seed draws the same members."""

    given: Sequence[tuple[Any, Any]] = ()
    """The same bands as the caller gave them."""

    sort_key: tuple[float, bytes] | None = None
    """The score of the member and its stored form, if the caller knows them. Saves a round trip where the index that
    holds the member isn't the only one to deal."""

    where: Where | None = None
    """A condition that only the database can test."""

    at: Point | None = None
    """The position to draw around, in place of that of the member."""

    @property
    def chance(self) -> random.Random:
        """A generator of random numbers, which begins with the seed."""
        return random.SystemRandom() if self.seed is None else random.Random(self.seed)  # noqa: S311 - not for secrets

    @property
    def key(self) -> Callable[[bytes], Any]:
        """A function from a primary key, as it is stored, to what ``excluded`` holds."""
        return int if self.excluded and isinstance(next(iter(self.excluded)), int) else bytes.decode

    def steps(self, view: View, keys: Keys) -> Steps[Sample | None]:
        """One round trip; more if many members don't pass the filters, or may not be offered.

        The short script doesn't know who is excluded. If too many of those drawn are, the draw begins anew: this
        depends on their number alone, so it favours nobody."""
        is_found = not self.at or self.member is None  # by the short script
        if (
            not view.takes_short_script
            or self.measure != "score"
            or not is_found
            or self.avoiding
            or self.where
        ):
            return (yield from self.begin(view, keys).run())
        wanted, excluded = self.wanted, self.excluded
        numbers = 6 * ((3 if excluded else 1) * wanted + 2 * SPARE)
        arguments = (
            self.member or "",
            wanted,
            "1" if view.reverse else "0",
            packed_bands(tuple(self.bands), self.measure),
            urandom(numbers) if self.seed is None else self.chance.randbytes(numbers),
            len(excluded),
            keys.build,
            repr(self.at.score) if self.at else "",
        )
        call = Call(scripts.SAMPLE_NEARBY, (keys.root, keys.meta), arguments, 60 + 6 * wanted)
        (reply,) = yield Request((call,))
        if reply[0] == b"not ranked":
            return None
        _, size, band, candidates, ahead, left_before, left_after, *flat = reply
        ranks = [size - 1 - at for at in flat[::3]] if view.reverse else flat[::3]
        cards = list(zip(map(float, flat[2::3]), flat[1::3], ranks, strict=True))
        if excluded:  # else exactly those are dealt that are wanted
            key_of, is_last = self.key, band == len(self.bands)
            before = [card for card in cards[:ahead] if key_of(card[1]) not in excluded]
            after = [card for card in cards[ahead:] if key_of(card[1]) not in excluded]
            cards = halves(wanted, before, after)
            if (
                (left_before and len(before) < (wanted + 1) // 2)
                or (left_after and len(after) < wanted // 2)
                or (len(cards) < wanted and (left_before or left_after or not is_last))
            ):
                # The same random numbers would depend on what has failed.
                again = self if self.seed is None else self._replace(seed=f"{self.seed!r} again")
                return (yield from again.begin(view, keys).run())
        return Sample(band - 1, candidates, cards, is_ranked=True)

    def begin(self, view: View, keys: Keys) -> Drawing:
        """Begin to draw among the members of a view."""
        drawing: Drawing = (view.drawing or Drawing)(self, view, keys, self.at and self.at[:2])
        return drawing


class Limits(NamedTuple):
    """The most members of a side that a round trip returns."""

    small: int = 16
    """Those of a side that is dealt whole, so that small bands take one round trip."""

    cards: int = 400
    page: int = 1000
    """Those that are read in order, from a side of which most can't be offered."""


LIMITS: Final = Limits()


class Table:
    """The members of a band that one index deals: a deck below the asking member, and one above it."""

    def __init__(self, keys: Keys, *, is_own: bool) -> None:
        """``is_own``: True if the index holds the asking member."""
        self.keys, self.is_own = keys, is_own
        self.decks = Deck(), Deck()
        self.inside: int | None = None
        """The number of members in the band; None until they are counted."""


class Drawing:
    """A draw that is under way: cards are dealt, and those that may be offered are taken."""

    def __init__(self, draw: Draw, view: View, keys: Keys, me: tuple[float, bytes] | None = None) -> None:
        """``keys``: those of the index that holds the asking member. ``me``: that member, or what would stand there;
        None if it is looked up."""
        self.draw, self.view, self.keys, self.me = draw, view, keys, me
        self.limits = LIMITS
        self._standing = "own"
        self._rng = draw.chance
        self._text = draw.member or ""
        self._trips = self._tried = 0
        self._avoided: dict[bytes, int] | None = None if draw.avoiding else {}
        """Members to avoid, by their primary keys: numbered in the order in which they are offered; None until they are
        read."""

        self._passed_over: list[tuple[int, Card]] = []
        """Those who are avoided, and would have been taken."""

        self._split, self._key = view.layout.split, draw.key
        self._member = None if draw.member is None else self._key(self._text.encode())

    def run(self) -> Steps[Sample | None]:
        """Draw; None if the member is not ranked."""
        draw = self.draw
        for band in range(len(draw.bands)):
            found = yield from self._from_band(band)
            if not found:
                return None
            chosen = self._chosen()
            if len(chosen) >= draw.wanted or self._tried >= _MOST_TRIED:
                break
        again = [card for _, card in sorted(self._passed_over)]
        chosen += again[: draw.wanted - len(chosen)]
        if draw.avoiding and chosen:
            members = [self._split(stored)[1] for _, stored, _ in chosen]
            yield from draw.avoiding.drawn(self.keys, self._text, members)
        candidates = self._inside if self._counts_candidates else None
        is_ranked = self._trips == 1 and all(before is not None for *_, before in chosen)
        return Sample(band, candidates, chosen, is_ranked)

    @property
    def _counts_candidates(self) -> bool:
        """True if all members inside the band are candidates."""
        return self.draw.where is None

    def _chosen(self) -> list[Card]:
        below, above = self._hand.taken
        return halves(self.draw.wanted, *((above, below) if self.view.reverse else (below, above)))

    def _from_band(self, band: int) -> Steps[bool]:
        """Take cards from a band until there are enough. Return False if the member is not ranked."""
        draw = self.draw
        self._hand = self._begin()
        self._known: set[bytes] = set()
        self._passed_over.clear()
        ends = yield from self._ends_of(band)
        more = max(2, 8 // draw.wanted) if draw.where else 1
        while any(lacks := self._hand.lacks()):
            self._trips += 1
            yield from self._dealing(ends, lacks, more)
            if self.me is None:
                return False
            if not (yield from self._take(more)):
                break
            more = min(2 * more, _MOST_TRIED)
        return True

    def _begin(self) -> Hand:
        """Return the hand of a band of which no card is dealt."""
        self._table = Table(self.keys, is_own=self.draw.member is not None)
        return Hand(self.draw.wanted, self._table.decks, reverse=self.view.reverse)

    def _ends_of(self, band: int) -> Steps[Ends]:
        """Return the ends of a band, as they are given."""
        yield from ()
        return self._given_ends(band)

    @property
    def read_at_once(self) -> int:
        """The most members of a band of ranks, if all of them are read before any is drawn; 0 if they are dealt."""
        return 0

    def _given_ends(self, band: int) -> Ends:
        draw = self.draw
        return draw.measure, packed_bands((draw.bands[band],), draw.measure)

    def _dealing(self, ends: Ends, lacks: Sequence[int], more: int) -> Steps[None]:
        """Have cards dealt, so that ``more`` times what either side lacks can be taken.

        Nothing is asked if they are dealt already: where those of one side have failed, the other makes up for them."""
        if asked := self._wants(self._table, lacks, more):
            yield from self._ask(self._table, ends, asked)

    @property
    def _inside(self) -> int:
        """The number of members in the band."""
        return self._table.inside or 0

    def _share(self, table: Table, side: int, wanted: int) -> int:
        """Return the number of cards of a side to ask for, so that ``wanted`` can be taken."""
        return table.decks[side].share(wanted)

    @property
    def _barred(self) -> int:
        """A bound of the members that are passed over."""
        return len(self.draw.excluded) + (LIMITS.small if self._avoided is None else len(self._avoided))

    @property
    def _barred_here(self) -> int:
        """A bound of those that one table is expected to hold."""
        return self._barred

    def _wants(self, table: Table, lacks: Sequence[int], more: int) -> list[Asked]:
        """Return what to ask of a table, so that ``more`` times what either side lacks can be taken; nothing if it is
        known, and needn't deal any."""
        barred, limits, counts = self._barred, self.limits, [0, 0]
        for side, lack in enumerate(lacks):
            if lack and table.decks[side].lacks:
                counts[side] = min(limits.cards, self._share(table, side, lack * more))
        mosts = [count and self._most_for(count) for count in counts]
        asked: list[Asked] = []
        for side, count in enumerate(counts):
            deck, left = table.decks[side], self._hand.sides[side].left
            # So many may be barred that to read takes less than to deal: of a large side only after that was tried.
            is_barred = left is not None and left <= 2 * barred and (left <= 2 * LIMITS.page or more > _LONG)
            if count and (deck.is_read or is_barred):
                asked.append(deck.ask_in_order(limits.page))
            else:
                asked.append(deck.ask(count, mosts[side], 3 * (sum(mosts) + 2), self._rng))
        return asked if any(counts) or table.inside is None else []

    def _most_for(self, count: int) -> int:
        """Return the number of cards that may be dealt to find ``count``."""
        return count

    @property
    def _tells_ranks(self) -> bool:
        """True if cards are dealt with their ranks. Positions of several round trips can't be compared: those ranks are
        counted when they are used."""
        view = self.view
        return (
            self._trips == 1
            and view.ranking is not None
            and not (view.searches_ties and self.draw.wanted > _RANKED_AT_ONCE)
        )

    def _ask(self, table: Table, ends: Ends, asked: Sequence[Asked]) -> Steps[None]:
        """Have cards of a table dealt."""
        view, keys, me = self.view, table.keys, self.me
        is_own, ranks = table.is_own, self._tells_ranks
        width, memberships, reverse, method = view.order
        barred = self._barred_here if table.inside is None else 0
        arguments = (
            *(keys.build, width, memberships, reverse, method if ranks else ""),
            *(self._text, self._standing if is_own else "other"),
            *(("", "") if me is None else (repr(me[0]), me[1])),
            *(*ends, self.limits.small, barred),
            *(_SIDE.pack(*some[:3]) + some.numbers for some in asked),
        )
        below, above = asked
        cards = below.most + above.most + min(200, (below.wanted + above.wanted + 4) * 2 if barred else 0)
        each = self._cost_of_a_card(in_order=not (below.numbers or above.numbers))
        each += 60 if ranks and view.searches_ties else 0
        cost = 60 + each * cards + (below.skipped + above.skipped) // 2
        dealing = self._deal(keys, arguments, cost)
        if is_own and self._avoided is None and self.draw.avoiding:
            # Only the primary is sure to have them.
            reading = one(self.draw.avoiding.reading(keys, self._text), writes=True)
            reply, avoided = yield from together([dealing, reading])
            self._avoided = {who: at for at, who in enumerate(reversed(avoided))}
        else:
            reply = yield from dealing
        if reply[0] == b"not ranked":
            return
        if is_own:
            self._standing = "own"  # the member was there at one moment of the draw
        _, stored, score, table.inside, *sides = reply
        self.me = me or (float(score), stored)
        for deck, side in zip(table.decks, sides, strict=False):
            deck.add(side, 3 if ranks else 2, self._rng)

    def _cost_of_a_card(self, *, in_order: bool) -> int:
        """Return the microseconds that a card takes, about."""
        return 1 if in_order else 4

    def _deal(self, keys: Keys, arguments: Sequence[Any], cost: int) -> Steps[Any]:
        """Have cards dealt. Return the reply."""
        return self.view.read(keys, scripts.DEAL, arguments, cost)

    def _take(self, more: int) -> Steps[bool]:
        """Take the cards that may be offered. Return False if no more may be tested."""
        hand, where, split = self._hand, self.draw.where, self._split
        while any(lacks := hand.lacks()):
            dealt = [hand.take(side, lack * (more if where else 1)) for side, lack in enumerate(lacks)]
            if not any(dealt):
                break
            cards = [self._offered(side, some) for side, some in enumerate(dealt)]
            if where:
                members = [split(stored)[1] for side in cards for _, stored, _ in side]
                self._tried += len(members)
                good = yield Blocking(partial(where.passing, members))
                cards = [[card for card in side if split(card[1])[1] in good] for side in cards]
            for taken, side in zip(hand.taken, cards, strict=True):
                taken += side
            if self._tried >= _MOST_TRIED:
                return False
        return True

    def _offered(self, side: int, cards: Iterable[Card]) -> list[Card]:
        """Return the cards that may be offered: not those of the other side, of members that are excluded or avoided,
        or that were dealt before: one that moves between two round trips may be dealt twice."""
        found: list[Card] = []
        split, key_of, known, avoided, me = self._split, self._key, self._known, self._avoided, self.me
        excluded, member = self.draw.excluded, self._member
        for card in cards:
            who = split(card[1])[1]
            key = key_of(who)
            if key in excluded or key == member or who in known or (card > me) != bool(side):  # type: ignore[operator]
                continue
            known.add(who)
            if avoided and who in avoided:
                self._passed_over.append((avoided[who], card))
            else:
                found.append(card)
        return found


@lru_cache(maxsize=1024)
def packed_bands(bands: tuple[tuple[Number, Number], ...], measure: str) -> bytes:
    """Pack distances below and above as the scripts read them for this measure."""
    if measure == "exact":
        halves = (half for band in bands for end in band for half in _halves(end))
        return struct.pack(f">{4 * len(bands)}I", *halves)
    return struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands))


def _halves(number: Number) -> tuple[int, int]:
    """Split a distance of up to 64 bits into two halves of 32."""
    return divmod(min(int(number), 2**64 - 1), 2**32)
