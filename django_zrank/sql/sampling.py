"""Random members near one member."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Count, Q, Window
from django.db.models.functions import RowNumber

from ..codec.units import Number
from ..members import halves
from ..queries.draws import Draw, Sample
from ..queries.view import View
from .ranks import number
from .rows import CHUNK, Row, Rows

__all__ = ["Dealt", "Side", "choose", "near", "sample"]


Dealt = tuple[int, Row]
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
    One more for ranks, unless they are positions."""
    barred = {str(pk).encode() for pk in (*draw.excluded, draw.member) if pk is not None}
    chance = draw.chance
    placed = _placed(rows, view, draw)
    if placed is None:
        return None
    me, apart, elsewhere = placed
    by_ranks, passing = draw.measure == "ranks", rows.passing
    keep: Callable[[Iterable[bytes]], set[bytes]] = set
    if draw.where is not None and by_ranks:
        keep = draw.where.passing  # ranks count the others, too
    elif draw.where is not None:
        passing = passing.filter(pk__in=draw.where.rows.using(passing.db).values("pk"))
    for band, (below, above) in enumerate(draw.bands):
        size, candidates, sides = near(
            rows, passing, me, apart, below, above, by_ranks=by_ranks, elsewhere=elsewhere
        )
        chosen: list[Dealt] = []
        if candidates >= draw.wanted or band == len(draw.bands) - 1:
            before, after = reversed(sides) if view.reverse else sides
            chosen = choose(before, after, draw.wanted, barred, chance, keep)
        if len(chosen) == draw.wanted:
            break
    if draw.where is not None or view.method != "ordinal":
        numbers = number(rows, view, [row.member.decode() for _, row in chosen])
        ranks = [numbers[row.member][1] for _, row in chosen]
    else:
        ranks = [size - 1 - position if view.reverse else position for position, _ in chosen]
    drawn = [(row.score, row.stored) for _, row in chosen]
    return Sample(band, None if draw.where else candidates, drawn, ranks)


def choose(
    before: Side,
    after: Side,
    wanted: int,
    barred: Collection[bytes],
    chance: random.Random,
    keep: Callable[[Iterable[bytes]], set[bytes]] = set,
) -> list[Dealt]:
    """Draw half from each side, the odd one from before; one side makes up for what the other lacks. ``keep`` returns
    those of some members that may be drawn."""
    return halves(wanted, *(_deal(side, wanted, barred, chance, keep) for side in (before, after)))


def _deal(
    side: Side,
    wanted: int,
    barred: Collection[bytes],
    chance: random.Random,
    keep: Callable[[Iterable[bytes]], set[bytes]],
) -> Iterator[Dealt]:
    """Yield the members of a side that aren't barred, in random order.

    Looks up a sample of a large side; reads the whole side only if that doesn't suffice because most are barred.
    """
    positions, dealt = range(side.first, side.last + 1), set()
    size = wanted + min(len(barred), wanted + 17)
    if len(positions) > 4 * size:
        order = chance.sample(positions, size)
        found = side.find(order)
        good = keep([row.member for row in found.values()])
        # Missing ones have gone since they were counted: the statements may see different snapshots.
        for at in order:
            if at in found and found[at].member not in barred and found[at].member in good:
                dealt.add(found[at].member)
                yield at, found[at]
    if positions:
        done = {*barred, *dealt}
        rest = [(at, row) for at, row in enumerate(side.read(), side.first) if row.member not in done]
        good = keep([row.member for _, row in rest])
        chance.shuffle(rest)
        yield from (card for card in rest if card[1].member in good)


def _placed(rows: Rows, view: View, draw: Draw) -> tuple[Row, tuple[Q, Q], Row | None] | None:
    """Return the asking row, the rows below and above it, and the row of the same member if that is ranked at another
    position; None if it is not ranked."""
    at = draw.at
    if at and at.is_score:
        key = rows.kind.key(at.values[0])
        lower, higher = ("lte", "gt") if view.reverse else ("lt", "gte")
        return Row(None, at.values, at.score, b"", b""), (rows.than(key, lower), rows.than(key, higher)), None
    elsewhere = None
    me = None if draw.member is None else rows.find([draw.member], rows.ranked).get(draw.member)
    if at and not (me and (me.score, me.stored) == at[:2]):
        last: Any = "\U0010ffff" if view.reverse else ""
        text = me.text if me else last if draw.member is None else draw.member
        text = text.encode() if isinstance(text, str) and rows.connection.vendor == "mysql" else text
        elsewhere, me = me, Row(None, at.values, at.score, b"", b"", text)
    return me and (me, (rows.apart(me, higher=False), rows.apart(me, higher=True)), elsewhere)


def near(
    rows: Rows,
    passing: models.QuerySet[Any],
    me: Row,
    apart: tuple[Q, Q],
    below: Number,
    above: Number,
    *,
    by_ranks: bool,
    elsewhere: Row | None,
) -> tuple[int, int, tuple[Side, Side]]:
    """Return the number of members that are ``passing``, of those in a band around a member, and the band's two
    sides. ``elsewhere``: a row in the band that isn't counted there."""
    lower, higher = apart
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
    if elsewhere:
        counts["elsewhere"] = Count("pk", filter=Q(pk=elsewhere.pk))
        counts["its_position"] = Count("pk", filter=rows.apart(elsewhere, higher=False))
    found = passing.aggregate(**counts)
    position, after, base = found["position"], found["position"] + found["among"], found.get("first", 0)
    first = max(0, position - below) if by_ranks else base
    end = min(found["size"], after + above) if by_ranks else found["end"]
    sides = (
        _side(rows, passing.filter(lower), first, position - 1, base),
        _side(rows, passing.filter(higher), after, end - 1, after),
    )
    candidates = max(0, int(end - first - found["among"]))
    if elsewhere and found["elsewhere"] and first <= found["its_position"] < end:
        candidates -= 1
    return found["size"], candidates, sides


def _side(rows: Rows, ours: models.QuerySet[Any], first: int, last: int, base: int) -> Side:
    """The positions ``first`` to ``last`` among ``ours``, the lowest of which is at ``base``."""
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
