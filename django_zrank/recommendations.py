"""The parameters of ``recommend()``, validated and turned into a draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from .codec.entry import Entry, LateEntry, LateRanks, RankBySortKey, Ranked
from .codec.units import EXACT, Number
from .conf import get_settings
from .entries import Recommendations
from .queries.sampling import Draw, Sample
from .queries.view import View

if TYPE_CHECKING:
    from .index import Band, RankIndex

__all__ = ["excluding", "parse_draw", "recommended", "sides"]


def parse_draw(
    index: RankIndex,
    view: View,
    member: str,
    n: int,
    *,
    band: Band | None = None,
    ranks: Band | None = None,
    widen: Sequence[Band] = (),
    remember: timedelta | None = None,
    seed: int | str | bytes | None = None,
    sort_key: tuple[float, bytes] | None = None,
) -> Draw:
    """The draw that the parameters of :meth:`~django_zrank.ranking.Ranking.recommend` describe, without exclusions.
    Raises ``ValueError``, naming the parameter."""
    ceiling = get_settings().max_n
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= ceiling:
        raise ValueError(f"n: expected a whole number from 1 to {ceiling}, not {n!r}")
    if seed is not None and not isinstance(seed, (int, str, bytes)):
        raise ValueError(f"seed: expected an int, str or bytes, not {seed!r}")
    if ranks is not None and band is not None:
        raise ValueError("ranks: give a band of scores, or one of ranks, not both")
    if ranks is not None:
        given, measure = [("ranks", ranks)], "ranks"
    else:
        band = index.get_band() if band is None else band
        if band is None:
            raise ValueError(f"band: {type(index).__name__} has no default band, so one must be given")
        given, measure = [("band", band)], "exact" if index.ordering.is_wide else "score"
    if widen:
        if isinstance(widen, str) or not isinstance(widen, Sequence):
            raise ValueError(f"widen: expected a sequence of bands, not {widen!r}")
        given += [("widen", step) for step in widen]
    bands, distances = [], []
    for name, one in given:
        try:
            below, above = sides(one)
        except ValueError:
            raise ValueError(f"{name}: expected a distance, or (below, above), not {one!r}") from None
        bands.append((below, above))
        if ranks is not None:
            distances.append(_ranks(name, below, above, view.reverse))
            continue
        distance = index.ordering.first.kind.distance
        try:
            units = distance(below)
            distances.append((units, units if above is below else distance(above)))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    span = None if remember is None else _microseconds(remember)
    return Draw(member, n, tuple(distances), measure, (), span, seed, bands, sort_key)


def recommended(
    index: RankIndex,
    view: View,
    draw: Draw,
    sample: Sample,
    ranks: LateRanks | RankBySortKey | None = None,
) -> Recommendations:
    """The members of a sample, best first. ``ranks``: the ranks of its members, if the sample has none."""
    size, drawn, reverse = sample.size, sample.drawn, view.reverse
    ranked: list[Ranked]
    if size is None:
        # A condition on rows takes several draws, whose positions can't be compared.
        sort_keys = sorted(((score, who) for _, who, score in drawn), reverse=reverse)
        ranked = [(who, score, None if ranks is None else ranks[score, who]) for score, who in sort_keys]
    elif sample.before is not None:
        numbered = sorted(zip(drawn, sample.before, strict=True), reverse=reverse)
        ranked = [(who, score, before + 1) for (_, who, score), before in numbered]
    elif reverse:
        ranked = [(who, score, size - at) for at, who, score in sorted(drawn, reverse=True)]
    else:
        ranked = [(who, score, at + 1) for at, who, score in sorted(drawn)]
    entries = index.to_entries(ranked, LateEntry if isinstance(ranks, LateRanks) else Entry)
    band = draw.given[sample.band]
    return Recommendations(index, entries, band, sample.candidates)


def excluding(index: RankIndex, draw: Draw, given: Mapping[str, Sequence[Any]]) -> Draw:
    """The draw with its exclusions, in the form that is cheapest to send; ``given``: members, by the parameter that
    excludes them."""
    excluded = list(chain.from_iterable(given.values()))
    if index.has_integer_pk and set(map(type, excluded)) == {int}:
        # In an intersection, the member itself may still be at the position of some seconds ago.
        excluded.append(int(draw.member))
        if min(excluded) > -EXACT and max(excluded) < EXACT:
            return draw._replace(excluded=excluded)
    texts = [index.to_text(one, name) for name, members in given.items() for one in members]
    return draw._replace(excluded=texts)


def _microseconds(span: timedelta) -> int:
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f"remember: expected a positive timedelta, not {span!r}")
    return span // timedelta(microseconds=1)


def sides(band: Any) -> tuple[Any, Any]:
    """The two sides of a band: below and above. Raises ``ValueError`` if there are not two."""
    below, above = band if isinstance(band, (tuple, list)) else (band, band)
    return below, above


def _ranks(name: str, below: int, above: int, reverse: bool) -> tuple[Number, Number]:
    """Numbers of ranks below and above, as positions: those below rank worse."""
    for distance in (below, above):
        if isinstance(distance, bool) or not isinstance(distance, int) or distance < 0:
            raise ValueError(f"{name}: expected a number of ranks, not {distance!r}")
    below, above = min(below, EXACT), min(above, EXACT)
    return (below, above) if reverse else (above, below)
