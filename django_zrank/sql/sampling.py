"""Random members near one member."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Count, Q, Window
from django.db.models.functions import RowNumber

from ..codec.units import Number
from ..iteration import batched, halves
from ..queries.draws import Draw, Sample
from ..queries.view import View
from .rows import CHUNK, Row, Rows

__all__ = ["Dealt", "Side", "choose", "near", "sample"]


Dealt = tuple[int, Row]
"""A position, and the row there."""


class Side(NamedTuple):
    """A side of a band."""

    positions: range

    find: Callable[[Sequence[int]], Iterable[Dealt]]
    """Returns the rows at some of these positions, in the same order each time."""


class Origin(NamedTuple):
    """The place that members are drawn around."""

    key: Number
    """That of the score there."""

    lower: Q
    """The rows at lower positions."""

    higher: Q

    own: Row | None
    """The row of the asking member, wherever that is ranked."""

    is_own: bool
    """True if it is ranked in this place."""


def sample(rows: Rows, view: View, draw: Draw) -> Sample | None:
    """Draw with four queries, or up to six if much is excluded; one query less for each further band that is tried.
    One more for ranks, unless they are positions."""
    origin = _origin(rows, view, draw)
    if origin is None:
        return None
    barred = {str(pk).encode() for pk in (*draw.excluded, draw.member) if pk is not None}
    chance, by_ranks, passing = draw.chance, draw.measure == "ranks", rows.passing
    keep: Callable[[Iterable[bytes]], set[bytes]] = set
    if draw.where is not None and by_ranks:
        keep = draw.where.passing  # ranks count the others, too
    elif draw.where is not None:
        passing = passing.filter(pk__in=draw.where.rows.using(passing.db).values("pk"))
    for band, distances in enumerate(draw.bands):
        size, candidates, sides = near(rows, passing, origin, *distances, by_ranks=by_ranks)
        chosen: list[Dealt] = []
        if candidates >= draw.wanted or band == len(draw.bands) - 1:
            better, worse = reversed(sides) if view.reverse else sides
            chosen = choose(better, worse, draw.wanted, barred, chance, keep)
        if len(chosen) == draw.wanted:
            break
    if draw.where is not None or view.method != "ordinal":
        numbers = rows.number(view, [row.member.decode() for _, row in chosen])
        ranks = [numbers[row.member][1] for _, row in chosen]
    else:
        ranks = [size - 1 - position if view.reverse else position for position, _ in chosen]
    drawn = [(row.score, row.stored, before) for (_, row), before in zip(chosen, ranks, strict=True)]
    return Sample(band, None if draw.where else candidates, drawn, is_ranked=True)


def choose(
    better: Side,
    worse: Side,
    wanted: int,
    barred: Collection[bytes],
    chance: random.Random,
    keep: Callable[[Iterable[bytes]], set[bytes]] = set,
) -> list[Dealt]:
    """Draw half from each side, the odd one from the better; one side makes up for what the other lacks. ``keep``
    returns those of some members that may be drawn."""
    return halves(wanted, *(_deal(side, wanted, barred, chance, keep) for side in (better, worse)))


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
    done = {*barred}

    def look_up(positions: Sequence[int]) -> Iterator[Dealt]:
        # Some may have gone since they were counted: the statements may see different snapshots.
        cards = [card for card in side.find(positions) if card[1].member not in done]
        good = keep([row.member for _, row in cards])
        chance.shuffle(cards)
        return (card for card in cards if card[1].member in good)

    size = wanted + min(len(barred), wanted + 17)
    if len(side.positions) > 4 * size:
        for card in look_up(chance.sample(side.positions, size)):
            done.add(card[1].member)
            yield card
    if side.positions:
        yield from look_up(side.positions)


def _origin(rows: Rows, view: View, draw: Draw) -> Origin | None:
    """Return the place to draw around; None if the asking member is not ranked."""
    at, own = draw.at, None
    if at and at.is_score:
        key = rows.kind.key(at.values[0])
        below, above = ("lte", "gt") if view.reverse else ("lt", "gte")
        return Origin(key, rows.than(key, below), rows.than(key, above), None, is_own=False)
    if draw.member is not None:
        own = rows.find([draw.member], rows.ranked).get(draw.member)
    me = own
    if at and not (own and (own.score, own.stored) == at[:2]):
        last = "\U0010ffff" if view.reverse else ""
        text: Any = own.text if own else last if draw.member is None else draw.member
        text = text.encode() if isinstance(text, str) and rows.connection.vendor == "mysql" else text
        me = Row(None, at.values, at.score, b"", b"", text)
    if me is None:
        return None
    lower, higher = rows.apart(me, higher=False), rows.apart(me, higher=True)
    return Origin(rows.kind.key(me.values[0]), lower, higher, own, is_own=me is own)


def near(
    rows: Rows,
    passing: models.QuerySet[Any],
    origin: Origin,
    below: Number,
    above: Number,
    *,
    by_ranks: bool,
) -> tuple[int, int, tuple[Side, Side]]:
    """Return the number of members that are ``passing``, of those in a band without the asking one, and the band's two
    sides."""
    key, lower, higher, own, is_own = origin
    counts = {"size": Count("pk"), "position": Count("pk", filter=lower)}
    if own:
        counts["own"] = Count("pk", filter=Q(pk=own.pk))
        counts["own_position"] = Count("pk", filter=rows.apart(own, higher=False))
    if not by_ranks:
        from_low, to_high = rows.than(key - below, "gte"), rows.than(key + above, "lte")
        counts["first"] = Count("pk", filter=rows.than(key - below, "lt"))
        counts["end"] = Count("pk", filter=to_high)
        # The range is given again without an OR, for which databases rarely use an index.
        lower &= from_low & rows.than(key, "lte")
        higher &= to_high & rows.than(key, "gte")
    found = passing.aggregate(**counts)
    position = found["position"]
    after, base = position + (found["own"] if is_own else 0), found.get("first", 0)
    first = int(max(0, position - below)) if by_ranks else base
    end = int(min(found["size"], after + above)) if by_ranks else found["end"]
    is_inside = own and found["own"] and first <= found["own_position"] < end
    sides = (
        _side(rows, passing.filter(lower), range(first, position), base),
        _side(rows, passing.filter(higher), range(after, end), after),
    )
    return found["size"], max(0, end - first - bool(is_inside)), sides


def _side(rows: Rows, ours: models.QuerySet[Any], positions: range, base: int) -> Side:
    """Return the ``positions`` among ``ours``, the lowest of which is at ``base``."""

    def find(wanted: Sequence[int]) -> Iterator[Dealt]:
        if isinstance(wanted, range):
            ordered = ours.order_by(*rows.ascending).values_list("pk", *rows.columns)
            numbered = zip(wanted, ordered[wanted.start - base : wanted.stop - base], strict=False)
            return ((at, rows.row(pk, values)) for at, (pk, *values) in numbered)
        position = Window(RowNumber(), order_by=rows.ascending) + (base - 1)
        columns = ours.annotate(zrank_position=position).values_list("zrank_position", "pk", *rows.columns)
        parts = (columns.filter(zrank_position__in=chunk) for chunk in batched(wanted, CHUNK))
        found = chain.from_iterable(part.order_by("zrank_position") for part in parts)
        return ((at, rows.row(pk, values)) for at, pk, *values in found)

    return Side(positions, find)
