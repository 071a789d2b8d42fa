"""Random members near one member."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db.models import Count, Q, Window
from django.db.models.functions import RowNumber

from ..codec.units import Number
from ..members import halves
from ..queries.sampling import Draw, Sample
from ..queries.view import View
from .ranks import number
from .rows import CHUNK, Row, Rows

__all__ = ["Card", "Side", "choose", "near", "sample"]


Card = tuple[int, Row]
"""A position, and the row there."""


class Side(NamedTuple):
    """The positions ``first`` to ``last`` before or after a member."""

    first: int
    last: int

    find: Callable[[Sequence[int]], Mapping[int, Row]]
    """Returns the rows at some positions."""

    read: Callable[[], Iterable[Row]]
    """Returns all rows, in order."""


def sample(rows: Rows, view: View, draw: Draw) -> Sample | None:
    """Draw with four queries, or up to seven if much is excluded; one query less for each further band that is tried.
    One more unless the method is ordinal."""
    barred = {str(pk).encode() for pk in draw.excluded}
    chance = random.Random(draw.numbers()(16))  # noqa: S311 - not for secrets
    me = rows.find([draw.member], rows.ranked).get(draw.member)
    if me is None:
        return None
    for band, (below, above) in enumerate(draw.bands):
        found, sides = near(rows, me, below, above, by_ranks=draw.measure == "ranks")
        chosen: list[Card] = []
        if (found.candidates or 0) >= draw.wanted or band == len(draw.bands) - 1:
            before, after = reversed(sides) if view.reverse else sides
            chosen = choose(before, after, draw.wanted, barred, chance)
        if len(chosen) == draw.wanted:
            break
    better = None
    if view.method != "ordinal":
        numbers = number(rows, view, [row.member.decode() for _, row in chosen])
        better = [numbers[row.member][1] for _, row in chosen]
    drawn = [(position, row.stored, row.score) for position, row in chosen]
    return found._replace(band=band, drawn=drawn, before=better)


def choose(
    before: Side, after: Side, wanted: int, barred: Collection[bytes], chance: random.Random
) -> list[Card]:
    """Draw half from each side, the odd one from before; one side makes up for what the other lacks."""
    return halves(wanted, *(_deal(side, wanted, barred, chance) for side in (before, after)))


def _deal(side: Side, wanted: int, barred: Collection[bytes], chance: random.Random) -> Iterator[Card]:
    """Yield the members of a side that aren't barred, in random order.

    Looks up a sample of a large side; reads the whole side only if that doesn't suffice because most are barred.
    """
    positions, dealt = range(side.first, side.last + 1), set()
    size = wanted + min(len(barred), wanted + 17)
    if len(positions) > 4 * size:
        order = chance.sample(positions, size)
        found = side.find(order)
        # Missing ones have gone since they were counted: the statements may see different snapshots.
        for at in order:
            if at in found and found[at].member not in barred:
                dealt.add(found[at].member)
                yield at, found[at]
    if positions:
        done = {*barred, *dealt}
        rest = [(at, row) for at, row in enumerate(side.read(), side.first) if row.member not in done]
        chance.shuffle(rest)
        yield from rest


def near(
    rows: Rows, me: Row, below: Number, above: Number, *, by_ranks: bool
) -> tuple[Sample, tuple[Side, Side]]:
    """Return an empty sample of a band around a member, and the two sides of the band."""
    lower, higher = rows.apart(me, higher=False), rows.apart(me, higher=True)
    counts = {"size": Count("pk"), "position": Count("pk", filter=lower)}
    counts["among"] = Count("pk", filter=Q(pk=me.pk))
    if not by_ranks:
        key = rows.kind.key(me.values[0])
        from_low, to_high = rows.than(key - below, "gte"), rows.than(key + above, "lte")
        counts["first"] = Count("pk", filter=rows.than(key - below, "lt"))
        counts["end"] = Count("pk", filter=to_high)
        # The range is given again without an OR, for which databases rarely use an index.
        lower &= from_low & rows.than(key, "lte")
        higher &= to_high & rows.than(key, "gte")
    found = rows.passing.aggregate(**counts)
    position, after, base = found["position"], found["position"] + found["among"], found.get("first", 0)
    first = max(0, position - below) if by_ranks else base
    end = min(found["size"], after + above) if by_ranks else found["end"]
    sides = (
        _side(rows, first, position - 1, lower, base),
        _side(rows, after, end - 1, higher, after),
    )
    candidates = max(0, int(end - first - found["among"]))
    return Sample(found["size"], position, 0, candidates, [], None), sides


def _side(rows: Rows, first: int, last: int, where: Q, base: int) -> Side:
    """The positions ``first`` to ``last`` among the rows ``where``, the lowest of which is at ``base``."""
    ours = rows.passing.filter(where)
    numbered = ours.annotate(zrank_position=Window(RowNumber(), order_by=rows.ascending) + (base - 1))

    def find(positions: Sequence[int]) -> dict[int, Row]:
        cards: dict[int, Row] = {}
        for start in range(0, len(positions), CHUNK):
            found = numbered.filter(zrank_position__in=positions[start : start + CHUNK])
            for position, pk, *values in found.values_list("zrank_position", "pk", *rows.order.paths):
                cards[position] = rows.row(pk, values)
        return cards

    def read() -> Iterator[Row]:
        found = ours.order_by(*rows.ascending).values_list("pk", *rows.order.paths)
        return (rows.row(pk, values) for pk, *values in found[first - base : last - base + 1])

    return Side(first, last, find, read)
