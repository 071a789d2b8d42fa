"""The steps of ``recommend()`` around a draw: validating parameters, reading exclusions, testing conditions that only
the database can, and making the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, models

from .codec.entry import Entry, LateEntry, LateRanks, RankBySortKey, Ranked
from .codec.units import EXACT, LAST, Band, Number
from .conf import get_settings
from .declaration import Index
from .entries import Recommendations
from .exceptions import Unrankable
from .extension import avoided_by
from .iteration import batched
from .members import members_of, values_of
from .queries.draws import Draw, Point, Sample, Where
from .queries.request import Blocking
from .queries.steps import Steps
from .queries.view import View

__all__ = ["condition", "excluded_by_index", "excluding", "parse_draw", "parse_point", "recommended", "sides"]


def parse_draw(
    index: Index,
    view: View,
    member: str | None,
    n: int,
    *,
    band: Band | None = None,
    ranks: Band | None = None,
    widen: Sequence[Band] = (),
    remember: timedelta | None = None,
    seed: int | str | bytes | None = None,
    sort_key: tuple[float, bytes] | None = None,
    at: Point | None = None,
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
    avoiding = None if remember is None else avoided_by("remember", remember)
    return Draw(member, n, tuple(distances), measure, frozenset(), avoiding, seed, bands, sort_key, at=at)


def parse_point(index: Index, view: View, at: Any) -> Point:
    """The position of a score, or of an instance of the model: if unsaved, ahead of those that are equal to it. Raises
    ``ValueError``."""
    order = index.ordering
    try:
        if not isinstance(at, models.Model):
            return Point(*order.ahead_of(at, reverse=view.reverse), (at,), is_score=True)
        member = (LAST if view.reverse else b"") if at.pk is None else index.to_text(at).encode()
        values = values_of(index, at)
        for criterion, value in zip(order.criteria, values, strict=True):
            criterion.kind.check_loaded(value)
        score, tie = order.encode(values)
    except KeyError as error:
        raise ValueError(f"at: {error.args[0]} of {at!r} is not loaded") from None
    except (ArithmeticError, AttributeError, TypeError, Unrankable, ValueError) as error:
        raise ValueError(f"at: {error}") from None
    return Point(float(score), tie + member, order.decode(float(score), tie), is_score=False)


def recommended(
    index: Index,
    view: View,
    draw: Draw,
    sample: Sample,
    ranks: LateRanks | RankBySortKey | None = None,
) -> Recommendations:
    """The members of a sample, best first. ``ranks``: the ranks of its members, if the sample has none."""
    ranked: list[Ranked]
    cards = sorted(sample.drawn, reverse=view.reverse)
    if sample.is_ranked:
        ranked = [(who, score, before + 1) for score, who, before in cards]  # type: ignore[operator]
    else:
        ranked = [(who, score, None if ranks is None else ranks[score, who]) for score, who, _ in cards]
    entries = index.to_entries(ranked, LateEntry if isinstance(ranks, LateRanks) else Entry)
    return Recommendations(index, entries, draw.given[sample.band], sample.candidates)


def excluding(index: Index, draw: Draw, given: Mapping[str, Sequence[Any]]) -> Draw:
    """The draw with its exclusions; ``given``: members, by the parameter that excludes them."""
    excluded = list(chain.from_iterable(given.values()))
    if index.has_integer_pk and set(map(type, excluded)) == {int}:
        return draw._replace(excluded=frozenset(excluded))
    texts = (index.to_text(one, name) for name, members in given.items() for one in members)
    return draw._replace(excluded=frozenset(texts))


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


def excluded_by_index(index: Index, members: Sequence[Any]) -> Steps[list[list[Any] | None]]:
    """The steps to the members that the hooks exclude for each of ``members``; None for one that has no row."""
    if not index.has_excluded:
        return [[] for _ in members]
    coroutine = partial(_aexcluded, index, members) if index.has_async_excluded else None
    found: list[list[Any] | None] = yield Blocking(partial(_excluded, index, members), coroutine)
    return found


def _excluded(index: Index, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = _rows(index, members)
    found: Mapping[Any, Any] = index.get_excluded_many([row for row in rows if row is not None])
    return [None if row is None else _listed(_of(index, row, found)) for row in rows]


async def _aexcluded(index: Index, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = await sync_to_async(_rows)(index, members)
    found: Mapping[Any, Any] = await index.aget_excluded_many([row for row in rows if row is not None])
    return [None if row is None else await _alisted(_of(index, row, found)) for row in rows]


def _of(index: Index, row: Any, found: Mapping[Any, Any]) -> Any:
    """The exclusions of a row. One that was made, not read, may have its key as text; the hook, as it was read."""
    return found.get(row.pk if row.pk in found else index.from_text(index.to_text(row)), ())


def _rows(index: Index, members: Sequence[Any]) -> list[Any]:
    """The row of each member: instances as they are, others by one query; None if there is none."""
    pks = {at: index.parse_pk(one) for at, one in enumerate(members) if not isinstance(one, models.Model)}
    if not pks:
        return list(members)
    every = models.QuerySet[Any](index.model, using=index.get_queryset().db)
    rows = {row.pk: row for row in every.filter(pk__in=pks.values())}
    return [rows.get(pks[at]) if at in pks else one for at, one in enumerate(members)]


def _listed(excluded: Any) -> list[Any]:
    return list(members_of("get_excluded()", excluded))


async def _alisted(excluded: Any) -> list[Any]:
    if hasattr(excluded, "__aiter__"):
        return [one async for one in excluded]
    return _listed(excluded)


# Conditions that only the database can test


def condition(index: Index, where: models.Q) -> Where:
    """Return the condition of a draw. Raises ``ValueError``."""
    if not getattr(where, "conditional", False):
        raise ValueError(f"where: expected a Q or another condition, not {where!r}")
    rows = index.get_queryset().filter(where).order_by()

    def passing(members: Iterable[bytes]) -> set[bytes]:
        pks = list(map(index.from_bytes, members))
        limit = connections[index.get_using()].features.max_query_params
        good: set[bytes] = set()
        # The condition may have parameters of its own.
        for chunk in batched(pks, limit // 2 if limit else len(pks)):
            found = rows.filter(pk__in=chunk).values_list("pk", flat=True)
            good.update(index.to_text(pk).encode() for pk in found)
        return good

    return Where(passing, rows)
