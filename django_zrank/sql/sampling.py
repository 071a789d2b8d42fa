"""Random members near one member."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Q, Window
from django.db.models.functions import RowNumber

from ..codec.units import Number
from ..members import halves
from ..requests.sampling import Draw, Sample
from ..requests.view import View
from .ranks import number
from .rows import CHUNK, Row, Rows

__all__ = ["Card", "Side", "choose", "near", "sample"]


class Card(NamedTuple):
    """A member of a side."""

    position: int
    member: bytes
    """Its primary key as text."""

    score: float
    tie: bytes = b""


class Side(NamedTuple):
    """The positions ``first`` to ``last`` before or after a member."""

    first: int
    last: int

    find: Callable[[Sequence[int]], Mapping[int, Card]]
    """Returns the members at some positions."""

    read: Callable[[], Iterable[Card]]
    """Returns all members."""


def sample(rows: Rows, view: View, draw: Draw) -> Sample | None:
    """Four queries, up to seven where much is excluded; each further band that is tried costs as much without the
    first. One more unless the method is ordinal."""
    barred = {str(pk).encode() for pk in draw.excluded}
    chance = random.Random(draw.numbers()(16))  # noqa: S311 - not for secrets
    me = rows.find([draw.member], rows.ranked).get(draw.member)
    if me is None:
        return None
    for band, (below, above) in enumerate(draw.bands):
        found = near(rows, me, below, above, by_ranks=draw.measure == "ranks")
        chosen: list[Card] = []
        if found.candidates >= draw.wanted or band == len(draw.bands) - 1:
            before, after = reversed(found.sides) if view.reverse else found.sides
            chosen = choose(before, after, draw.wanted, barred, chance)
        if len(chosen) == draw.wanted:
            break
    better = None
    if view.method != "ordinal":
        numbers = number(rows, view, [card.member.decode() for card in chosen])
        better = [numbers[card.member][1] for card in chosen]
    drawn = [(card.position, card.tie + card.member, card.score) for card in chosen]
    return Sample(found.size, found.position, band, found.candidates, drawn, better)


def choose(
    before: Side, after: Side, wanted: int, barred: Collection[bytes], chance: random.Random
) -> list[Card]:
    """Draw half from before, with the odd one, and half from after; what one side lacks the other gives."""
    return halves(wanted, *(_deal(side, wanted, barred, chance) for side in (before, after)))


def _deal(side: Side, wanted: int, barred: Collection[bytes], chance: random.Random) -> Iterator[Card]:
    """Yield the members of a side that aren't barred, in random order.

    A sample of a large side is looked up; the whole is read only if that doesn't suffice, as most are barred.
    """
    positions, dealt = range(side.first, side.last + 1), set()
    size = wanted + min(len(barred), wanted + 17)
    if len(positions) > 4 * size:
        order = chance.sample(positions, size)
        found = side.find(order)
        # What is missing has gone since it was counted: nothing promises that both statements see one state.
        for card in (found[at] for at in order if at in found):
            if card.member not in barred:
                dealt.add(card.member)
                yield card
    if positions:
        rest = [card for card in side.read() if card.member not in barred and card.member not in dealt]
        chance.shuffle(rest)
        yield from rest


class _Near(NamedTuple):
    """The two sides of a band around a member."""

    size: int
    position: int
    candidates: int
    sides: tuple[Side, Side]


def near(rows: Rows, me: Row, below: Number, above: Number, *, by_ranks: bool) -> _Near:
    lower, higher = rows.apart(me, higher=False), rows.apart(me, higher=True)
    counts = {"size": Count("pk"), "position": Count("pk", filter=lower)}
    counts["among"] = Count("pk", filter=Q(pk=me.pk))
    if by_ranks:
        found = rows.passing.aggregate(**counts)
        position, after = found["position"], found["position"] + found["among"]
        first, last = max(0, position - below), min(found["size"], after + above) - 1
        sides = (
            _side(rows, first, position - 1, lower, base=0),
            _side(rows, after, last, higher, base=after),
        )
    else:
        key = rows.kind.key(me.values[0])
        from_low, to_high = rows.than(key - below, "gte"), rows.than(key + above, "lte")
        counts["first"] = Count("pk", filter=rows.than(key - below, "lt"))
        counts["end"] = Count("pk", filter=to_high)
        found = rows.passing.aggregate(**counts)
        position, after = found["position"], found["position"] + found["among"]
        first, last = found["first"], found["end"] - 1
        # The range is given once more, without an OR: databases rarely use an index for one.
        lower &= from_low & rows.than(key, "lte")
        higher &= to_high & rows.than(key, "gte")
        sides = (
            _side(rows, first, position - 1, lower, base=first),
            _side(rows, after, last, higher, base=after),
        )
    candidates = max(0, int(last - first + 1 - found["among"]))
    return _Near(found["size"], position, candidates, sides)


def _side(rows: Rows, first: int, last: int, where: Q, base: int) -> Side:
    """The positions ``first`` to ``last`` among the rows ``where``, of which the lowest stands at ``base``."""
    ours = rows.passing.filter(where)
    numbered = ours.annotate(zrank_position=Window(RowNumber(), order_by=rows.ascending) + (base - 1))

    def find(positions: Sequence[int]) -> dict[int, Card]:
        cards: dict[int, Card] = {}
        for start in range(0, len(positions), CHUNK):
            found = numbered.filter(zrank_position__in=positions[start : start + CHUNK])
            for position, pk, *values in found.values_list("zrank_position", "pk", *rows.order.paths):
                cards[position] = _card(rows, position, pk, values)
        return cards

    def read() -> Iterator[Card]:
        found = ours.order_by(*rows.ascending).values_list("pk", *rows.order.paths)
        for position, (pk, *values) in enumerate(found[first - base : last - base + 1], first):
            yield _card(rows, position, pk, values)

    return Side(first, last, find, read)


def _card(rows: Rows, position: int, pk: Any, values: Sequence[Any]) -> Card:
    row = rows.row(pk, values)
    return Card(position, row.member, row.score, row.tie)
