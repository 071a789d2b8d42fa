"""The parameters of ``recommend()``, validated and turned into a draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from .codec.entry import Ranked
from .codec.units import EXACT, Number
from .conf import get_settings
from .engine.steps import Steps
from .entries import Recommendations
from .exclusions import excluded_by_index
from .requests.sampling import Draw, Excluded, Sample
from .requests.view import View

if TYPE_CHECKING:
    from .index import Band, RankIndex

__all__ = ["Wish", "excluding", "sides"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The validated parameters of :meth:`~django_zrank.ranking.Ranking.recommend`, for any member."""

    index: RankIndex
    view: View
    draw: Draw
    """The draw, without a member yet."""

    bands: Sequence[tuple[Any, Any]]
    """The bands to try in turn, as they were given."""

    exclude: Sequence[Any]

    @classmethod
    def parse(
        cls,
        index: RankIndex,
        view: View,
        n: int,
        *,
        band: Band | None = None,
        ranks: Band | None = None,
        exclude: Sequence[Any] = (),
        widen: Sequence[Band] = (),
        remember: timedelta | None = None,
        seed: int | str | bytes | None = None,
    ) -> Wish:
        """Raises ``ValueError``, naming the parameter."""
        ceiling = get_settings().max_n
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= ceiling:
            raise ValueError(f"n: expected a whole number from 1 to {ceiling}, not {n!r}")
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
                band = sides(one)
            except ValueError:
                raise ValueError(f"{name}: expected a distance, or (below, above), not {one!r}") from None
            bands.append(band)
            distances.append(
                _distances(index, name, band) if ranks is None else _ranks(name, band, view.reverse)
            )
        span = None if remember is None else _microseconds(remember)
        return cls(index, view, Draw("", n, distances, measure, (), span, seed), bands, exclude)

    def draws(self, members: Sequence[Any]) -> Steps[list[Draw | None]]:
        """The steps to the draw for each of ``members``, None for one that has no row to ask ``get_excluded()`` of."""
        if not (self.exclude or self.index.has_excluded):
            return [self.draw._replace(member=self.index.to_text(member)) for member in members]
        draws: list[Draw | None] = []
        found = yield from excluded_by_index(self.index, members)
        for member, excluded in zip(members, found, strict=True):
            if excluded is None:
                draws.append(None)
                continue
            text = self.index.to_text(member)
            given = {"exclude": self.exclude, "get_excluded()": excluded}
            draws.append(self.draw._replace(member=text, excluded=excluding(self.index, text, given)))
        return draws

    def answer(self, sample: Sample) -> Recommendations:
        """The members of a sample, best first."""
        size, drawn, reverse = sample.size, sample.drawn, self.view.reverse
        ranked: list[Ranked]
        if size is None:
            ranked = [(who, score, None) for _, who, score in sorted(drawn, reverse=reverse)]
        elif sample.before is not None:
            numbered = sorted(zip(drawn, sample.before, strict=True), reverse=reverse)
            ranked = [(who, score, before + 1) for (_, who, score), before in numbered]
        elif reverse:
            ranked = [(who, score, size - at) for at, who, score in sorted(drawn, reverse=True)]
        else:
            ranked = [(who, score, at + 1) for at, who, score in sorted(drawn)]
        return Recommendations(
            self.index, self.index.to_entries(ranked), self.bands[sample.band], sample.candidates
        )


def excluding(index: RankIndex, member: str, given: Mapping[str, Sequence[Any]]) -> Excluded:
    """Merge the exclusions for ``member`` into the form that is the cheapest to send; ``given``: members, by the
    parameter that excludes them."""
    excluded = list(chain.from_iterable(given.values()))
    if not excluded:
        return ()
    if index.has_integer_pk and set(map(type, excluded)) == {int}:
        # In an intersection the asking one may still stand where it stood some seconds ago.
        excluded.append(int(member))
        if min(excluded) > -EXACT and max(excluded) < EXACT:
            return excluded
    return [index.to_text(one, name) for name, members in given.items() for one in members]


def _microseconds(span: timedelta) -> int:
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f"remember: expected a positive timedelta, not {span!r}")
    return span // timedelta(microseconds=1)


def sides(band: Any) -> tuple[Any, Any]:
    """The two sides of a band: below and above. Raises ``ValueError`` where there are not two."""
    below, above = band if isinstance(band, (tuple, list)) else (band, band)
    return below, above


def _distances(index: RankIndex, name: str, band: tuple[Any, Any]) -> tuple[Number, Number]:
    distance = index.ordering.first.kind.distance
    try:
        return distance(band[0]), distance(band[1])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _ranks(name: str, band: tuple[Any, Any], reverse: bool) -> tuple[Number, Number]:
    """Numbers of ranks below and above, as positions: below is who ranks worse."""
    for distance in band:
        if isinstance(distance, bool) or not isinstance(distance, int) or distance < 0:
            raise ValueError(f"{name}: expected a number of ranks, not {distance!r}")
    below, above = band
    return (below, above) if reverse else (above, below)
