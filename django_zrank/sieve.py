"""Recommendations under a condition that only the database can test: ``recommend(where=…)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from django.db import connections, models

from .conf import get_settings
from .members import batched, halves
from .queries.sampling import Draw, Sample
from .queries.view import View
from .recommendations import excluding
from .redis.steps import Blocking, Steps

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["Sieve"]

_MOST_TRIED: Final = 5000
"""The most members that are tested."""

Ask: TypeAlias = Callable[[Draw], Steps[Sample | None]]


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
