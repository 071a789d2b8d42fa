"""Draws from a band that is read as a whole, because most of its members are excluded."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ..redis.keys import Keys
from .groups import remember_shown
from .pages import PageAt
from .query import Query
from .samples import Sample, span
from .view import View

if TYPE_CHECKING:
    from .sampling import Draw

__all__ = ["draw_whole"]

_CHUNK: Final = 1000
"""Members that are read in one round trip."""

Card: TypeAlias = tuple[int, bytes, float]
"""The position of a member, 0 for the lowest score; its stored form; its score."""


class _Whole(NamedTuple):
    """A band, as positions in a ranking."""

    size: int
    """Members in the ranking."""

    low: int
    high: int
    """The first position and the last one."""

    position: int
    """The number of members below the asking one."""


def draw_whole(
    draw: Draw,
    view: View,
    keys: Keys,
    reply: Sequence[Any],
    first: int,
    excluded: Collection[str],
    further: Callable[[int], Query[Sample | None]],
) -> Query[Sample | None]:
    """Draw from a band that is read in as many round trips as it takes. ``reply``: that of the script that gave up,
    which had the bands from ``first`` on; ``further``: draws from the band of a number."""
    _, score, band, candidates, _, *ends = reply[:9]
    whole, at = _Whole(*ends), first + band - 1
    is_last = at + 1 == len(draw.bands)
    # Members that cross the end of a band while it is read move others into its positions, and out of them.
    low, high = _ends(draw, float(score), at)
    cards = yield from _read(whole, replace(view, method="ordinal"), keys)
    shown: Sequence[bytes] = ()
    if draw.remember:
        shown = yield from remember_shown(keys, draw.member, draw.remember)
    left = {
        who: card
        for who, card in cards.items()
        if who not in excluded and who != draw.member and low <= card[2] <= high
    }
    before = [who.decode() for who in shown]
    found = _chosen(draw, whole, left, before, reverse=view.reverse, again=is_last)
    if len(found) < draw.wanted and not is_last:
        return (yield from further(at + 1))
    if draw.remember:
        yield from remember_shown(keys, draw.member, draw.remember, found)
    size = None if view.ranking is None else whole.size
    return Sample(size, whole.position, at, candidates, [left[who] for who in found], None)


def _ends(draw: Draw, mine: float, band: int) -> tuple[float, float]:
    """Return the lowest and the highest score of a band. One of ranks has none."""
    if draw.measure == "ranks":
        return -inf, inf
    below, above = draw.bands[band]
    if draw.measure == "score":
        return mine - below, mine + above
    low, high = span([(below, above)], mine)
    return float(low), float(high)


def _read(whole: _Whole, view: View, keys: Keys) -> Query[dict[str, Card]]:
    """Read the members of a band, by their primary keys."""
    first = whole.size - 1 - whole.high if view.reverse else whole.low
    split, last = view.layout.split, whole.size - 1 if view.reverse else 0
    cards: dict[str, Card] = {}
    starts = range(first, first + whole.high - whole.low + 1, _CHUNK)
    for start in starts:
        page = yield from PageAt(start, min(_CHUNK, starts.stop - start)).query(view, keys)
        for at, (stored, score) in enumerate(page.members, page.first):
            cards[split(stored)[1].decode()] = abs(last - at), stored, score
    return cards


def _chosen(
    draw: Draw, whole: _Whole, cards: Mapping[str, Card], shown: Sequence[str], *, reverse: bool, again: bool
) -> list[str]:
    """Choose half from each side, as ``lib/deck.lua`` does. Those ``shown`` before come only if there are no others,
    and only ``again``: the first ones first."""
    rng = random.SystemRandom() if draw.seed is None else random.Random(draw.seed)  # noqa: S311 - not for secrets
    new = [who for who in cards if who not in set(shown)] if shown else list(cards)
    rng.shuffle(new)
    before = [who for who in new if (cards[who][0] < whole.position) != reverse]
    after = [who for who in new if (cards[who][0] < whole.position) == reverse]
    half = (draw.wanted + 1) // 2
    order = before[:half] + after[: draw.wanted - len(before[:half])] + before[half:]
    if again:
        order += [who for who in shown if who in cards]
    return order[: draw.wanted]
