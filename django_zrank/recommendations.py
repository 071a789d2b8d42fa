"""The main job: random members near one member."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from django.db import models

from .conf import get_settings
from .exceptions import NotRanked

if TYPE_CHECKING:
    from .index import Band, RankIndex
    from .store import Number, Sample

__all__ = ["Entry", "Recommendations", "Source", "recommend"]


class Source(Protocol):
    """What answers: Redis (:class:`~django_zrank.store.Store`), or the database in its stead."""

    def sample_nearby(
        self,
        member: str,
        wanted: int,
        *,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Iterable[str],
        numbers: Callable[[int], bytes],
    ) -> Sample | None: ...

    def position(self, member: str, *, reverse: bool) -> int | None: ...

    def score(self, member: str) -> float | None: ...

    def size(self) -> int: ...


class Entry(NamedTuple):
    """One member of a ranking."""

    pk: Any
    """The primary key, in the model's own type."""

    score: Any
    """The value of the first criterion, in the field's own type."""

    rank: int
    """1 is best."""


class Recommendations(Sequence[Entry]):
    """The members drawn, best first."""

    def __init__(self, index: RankIndex, entries: list[Entry], band: Band, candidates: int) -> None:
        self._index = index
        self._entries = entries

        self.band = band
        """The band that was used: the one asked for, or the widening step that it took."""

        self.candidates = candidates
        """How many members the band held, beside the one who asked. Excluded ones are counted: telling them
        apart would cost a look-up each."""

    def __repr__(self) -> str:
        return f"<Recommendations {self._entries!r}>"

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> list[Entry]: ...
    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        return self._entries[position]

    def objects(self, queryset: models.QuerySet[Any] | None = None) -> list[Any]:
        """The rows, in the same order, by one query; those that are gone by now are left out.

        ``queryset``: where to take them from, for ``select_related()`` and the like. Default: the index's.
        """
        if not self._entries:
            return []
        if queryset is None:
            queryset = self._index.get_queryset()
        rows = {row.pk: row for row in queryset.filter(pk__in=[entry.pk for entry in self._entries])}
        return [rows[entry.pk] for entry in self._entries if entry.pk in rows]


def recommend(
    index: RankIndex,
    source: Source,
    member: Any,
    n: int,
    *,
    band: Band | None,
    exclude: Iterable[Any],
    widen: Sequence[Band],
    seed: int | str | bytes | None,
) -> Recommendations:
    """See :meth:`django_zrank.ranking.Ranking.recommend`."""
    ceiling = get_settings().max_n
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= ceiling:
        raise ValueError(f"n: expected a whole number from 1 to {ceiling}, not {n!r}")
    bands = _bands(index, band, widen)
    text = index.to_text(member)
    criterion = index.ordering.first
    sample = source.sample_nearby(
        text,
        n,
        reverse=criterion.descending,
        bands=[_distances(index, name, band) for name, band in bands],
        excluded=_excluded(index, member, exclude),
        numbers=os.urandom if seed is None else random.Random(seed).randbytes,  # noqa: S311 - not for secrets
    )
    if sample is None:
        raise NotRanked(f"{member!r} is not in the index {index.name!r}")
    to_pk, decode = index.from_bytes, criterion.kind.decode
    if criterion.descending:
        drawn, size = sorted(sample.drawn, reverse=True), sample.size
        entries = [Entry(to_pk(who), decode(score), size - at) for at, who, score in drawn]
    else:
        entries = [Entry(to_pk(who), decode(score), at + 1) for at, who, score in sorted(sample.drawn)]
    return Recommendations(index, entries, bands[sample.band][1], sample.candidates)


def _bands(index: RankIndex, band: Band | None, widen: Sequence[Band]) -> list[tuple[str, tuple[Any, Any]]]:
    """The bands to try in turn as (parameter, (below, above))."""
    if band is None:
        band = index.get_band()
    if band is None:
        raise ValueError(f"band: {type(index).__name__} has no default band, so one must be given")
    if isinstance(widen, str) or not isinstance(widen, Sequence):
        raise ValueError(f"widen: expected a sequence of bands, not {widen!r}")
    return [("band", _pair("band", band)), *(("widen", _pair("widen", step)) for step in widen)]


def _pair(name: str, band: Band) -> tuple[Any, Any]:
    if not isinstance(band, (tuple, list)):
        return band, band
    if len(band) != 2:
        raise ValueError(f"{name}: expected a distance, or (below, above), not {band!r}")
    below, above = band
    return below, above


def _distances(index: RankIndex, name: str, band: tuple[Any, Any]) -> tuple[Number, Number]:
    distance = index.ordering.first.kind.distance
    try:
        return distance(band[0]), distance(band[1])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _excluded(index: RankIndex, member: Any, exclude: Iterable[Any]) -> Iterable[str]:
    """Whom not to offer, as stored."""
    if isinstance(exclude, (str, bytes)) or not isinstance(exclude, Iterable):
        raise ValueError(f"exclude: expected members, not {exclude!r}")
    return chain(
        _texts(index, exclude, "exclude"),
        _texts(index, _excluded_by_index(index, member), "get_excluded()"),
    )


def _texts(index: RankIndex, members: Iterable[Any], parameter: str) -> Iterable[str]:
    members = list(members)
    if set(map(type, members)) <= {int}:  # by far the most common, and there may be thousands
        return map(str, members)
    return (index.to_text(one, parameter) for one in members)


def _excluded_by_index(index: RankIndex, member: Any) -> Iterable[Any]:
    """What ``get_excluded()`` says of the row; a primary key is looked up first."""
    if not index.has_excluded:
        return ()
    if not isinstance(member, models.Model):
        row = index.model._base_manager.filter(pk=member).first()
        if row is None:
            raise NotRanked(f"{member!r} is not in the index {index.name!r}")
        member = row
    return index.get_excluded(member)
