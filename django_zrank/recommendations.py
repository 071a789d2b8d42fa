"""What ``recommend()`` does around a draw: it validates parameters, reads exclusions, tests conditions that only the
database can, and makes the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from asgiref.sync import sync_to_async
from django.db import connections, models

from .codec.entry import Entry, LateEntry, LateRanks, RankBySortKey, Ranked
from .codec.units import EXACT, Number
from .conf import get_settings
from .entries import Recommendations
from .members import batched, halves, members_of
from .queries.sampling import Draw, Sample
from .queries.view import View
from .redis.steps import Blocking, Steps

if TYPE_CHECKING:
    from .index import Band, RankIndex

__all__ = ["Sieve", "excluded_by_index", "excluding", "parse_draw", "recommended", "sides"]

_MOST_TRIED: Final = 5000
"""The most members that are tested."""

Ask: TypeAlias = Callable[[Draw], Steps[Sample | None]]


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


# Exclusions by the hooks of an index


def excluded_by_index(index: RankIndex, members: Sequence[Any]) -> Steps[list[list[Any] | None]]:
    """The steps to the members that the hooks exclude for each of ``members``; None for one that has no row."""
    if not index.has_excluded:
        return [[] for _ in members]
    coroutine = partial(_aexcluded, index, members) if index.has_async_excluded else None
    found: list[list[Any] | None] = yield Blocking(partial(_excluded, index, members), coroutine)
    return found


def _excluded(index: RankIndex, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = _rows(index, members)
    found: Mapping[Any, Any] = index.get_excluded_many([row for row in rows if row is not None])
    return [None if row is None else _listed(found.get(row.pk, ())) for row in rows]


async def _aexcluded(index: RankIndex, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = await sync_to_async(_rows)(index, members)
    found: Mapping[Any, Any] = await index.aget_excluded_many([row for row in rows if row is not None])
    return [None if row is None else await _alisted(found.get(row.pk, ())) for row in rows]


def _rows(index: RankIndex, members: Sequence[Any]) -> list[Any]:
    """The row of each member: instances as they are, others by one query; None if there is none."""
    pks = {at: index.parse_pk(one) for at, one in enumerate(members) if not isinstance(one, models.Model)}
    if not pks:
        return list(members)
    rows = {row.pk: row for row in models.QuerySet[Any](index.model).filter(pk__in=pks.values())}
    return [rows.get(pks[at]) if at in pks else one for at, one in enumerate(members)]


def _listed(excluded: Any) -> list[Any]:
    return list(members_of("get_excluded()", excluded))


async def _alisted(excluded: Any) -> list[Any]:
    if hasattr(excluded, "__aiter__"):
        return [one async for one in excluded]
    return _listed(excluded)


# Conditions that only the database can test


@dataclass(frozen=True, slots=True)
class Sieve:
    """Draws members without replacement in growing batches, and keeps those that pass the condition: one query a batch.

    Those that pass come in an order that favours none, and the first ones of each side are taken.
    """

    index: RankIndex
    view: View
    draw: Draw
    rows: models.QuerySet[Any]
    """The rows that pass the condition."""

    def steps(self, ask: Ask) -> Steps[Sample | None]:
        """Draw, and return the sample of those that pass."""
        found = None
        for band in range(len(self.draw.bands)):
            one_band = self.draw._replace(bands=self.draw.bands[band : band + 1])
            found = yield from self._steps_of(band, one_band, ask)
            if found is None or len(found.drawn) >= self.draw.wanted:
                break
        return found

    def _steps_of(self, band: int, draw: Draw, ask: Ask) -> Steps[Sample | None]:
        """Draw from one band, until enough have passed or nobody is left."""
        n, tried, size, ranked = draw.wanted, list[Any](), max(8, 2 * draw.wanted), True
        index = self.index
        split, to_pk = index.layout.split, index.from_bytes
        passed: tuple[list[Any], list[Any]] = [], []  # of those that rank better, and of the others
        wants = (n + 1) // 2, n // 2
        while True:
            size = min(size, get_settings().max_n)
            # Every draw has a seed of its own: one that is repeated, after a swap, leaves the next as they were.
            seed = None if draw.seed is None else f"{draw.seed!r} {band} {len(tried)}"
            next_draw = draw._replace(wanted=size, seed=seed)
            sample = yield from ask(excluding(index, next_draw, {"where": [*draw.excluded, *tried]}))
            if sample is None:
                return None
            ranked = ranked and sample.size is not None
            pks = {stored: split(stored)[1] for _, stored, _ in sample.drawn}
            good: set[bytes] = yield Blocking(partial(self.passing, pks.values()))
            better = 0
            for number, card in enumerate(sample.drawn):
                is_better = (card[0] >= sample.position) == self.view.reverse
                better += is_better
                if pks[card[1]] in good:
                    passed[not is_better].append((card, sample.before and sample.before[number]))
            tried.extend(map(to_pk, pks.values()))
            # A side that gave less than its half has no more to give.
            ended = better < (size + 1) // 2, len(sample.drawn) - better < size // 2
            short = any(
                len(side) < want and not over for side, want, over in zip(passed, wants, ended, strict=True)
            )
            enough = sum(map(len, passed)) >= n and not short
            if enough or len(sample.drawn) < size or len(tried) >= _MOST_TRIED:
                break
            size *= 2
        chosen = halves(n, *passed)
        before = None if sample.before is None else [before for _, before in chosen]
        drawn = [card for card, _ in chosen]
        sample = sample._replace(band=band, candidates=None, drawn=drawn, before=before)
        return sample if ranked else sample._replace(size=None)

    def passing(self, members: Iterable[bytes]) -> set[bytes]:
        """Those of ``members``, primary keys as they are stored, that pass the condition."""
        index = self.index
        pks = list(map(index.from_bytes, members))
        limit = connections[index.get_using()].features.max_query_params
        good: set[bytes] = set()
        # The condition may have parameters of its own.
        for chunk in batched(pks, limit // 2 if limit else len(pks)):
            found = self.rows.filter(pk__in=chunk).values_list("pk", flat=True)
            good.update(index.to_text(pk).encode() for pk in found)
        return good
