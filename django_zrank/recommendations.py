"""The main job: random members near one member."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from django.db import connections, models

from .codec.units import EXACT
from .conf import get_settings
from .entries import Entries, Entry
from .exceptions import NotRanked

if TYPE_CHECKING:
    from .index import Band, RankIndex
    from .store import Bound, Excluded, Number, Page, Place, Sample

__all__ = ["Recommendations", "Source", "Wish", "recommend", "recommend_many", "recommend_where"]

_MOST_TRIED: Final = 5000
"""How many members are asked about at most, where only the database knows who passes."""

_MANY: Final = 200
"""Members asked for in one round trip."""


class Source(Protocol):
    """What answers: Redis (:class:`~django_zrank.store.Store`), or the database in its stead."""

    def sample_nearby(
        self,
        member: str,
        wanted: int,
        *,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Excluded,
        numbers: Callable[[int], bytes],
        measure: str = "score",
        method: str = "ordinal",
        remember: int | None = None,
    ) -> Sample | None: ...

    def sample_many(self, wishes: Sequence[Mapping[str, Any]]) -> list[Sample | None]: ...

    def position(self, member: str, *, reverse: bool) -> int | None: ...

    def score(self, member: str) -> float | None: ...

    def places(
        self, members: Iterable[str], *, reverse: bool, method: str
    ) -> tuple[int, list[Place | None]]: ...

    def page(self, first: int, count: int, *, reverse: bool, method: str) -> Page: ...

    def page_around(self, member: str, count: int, *, reverse: bool, method: str) -> Page | None: ...

    def page_between(self, best: Bound, worst: Bound, count: int, *, reverse: bool, method: str) -> Page: ...

    def size(self) -> int: ...

    def count_facet(self, facet: str, covered: str = "") -> dict[bytes, int]: ...


class Recommendations(Entries):
    """The members drawn, best first."""

    def __init__(self, index: RankIndex, entries: list[Entry], band: Band, candidates: int) -> None:
        super().__init__(index, entries)

        self.band = band
        """The band that was used: the one asked for, or the widening step that it took."""

        self.candidates = candidates
        """How many members the band held, beside the one who asked. Excluded ones are counted, and of several filters
        that no facet covers those who pass one: telling them apart would cost a look-up each."""


class Wish(NamedTuple):
    """What is asked of ``recommend()``: see :meth:`django_zrank.ranking.Ranking.recommend`."""

    n: int = 10
    band: Band | None = None
    ranks: Band | None = None
    exclude: Iterable[Any] = ()
    widen: Sequence[Band] = ()
    seed: int | str | bytes | None = None
    remember: timedelta | None = None


def recommend(index: RankIndex, source: Source, member: Any, wish: Wish) -> Recommendations:
    """Random members near ``member``."""
    draw = _Draw(_Plan(index, wish), member)
    return draw.answer(source.sample_nearby(**draw.request()))


def recommend_where(
    index: RankIndex, source: Source, member: Any, wish: Wish, where: models.Q
) -> Recommendations:
    """Random members near ``member`` that pass ``where``, which only the database can tell.

    Members are drawn without replacement in growing batches, and one query a batch tells which of them pass. So
    those that pass come in an order in which none is favoured, and the first ones of each side are taken.
    """
    if wish.remember is not None:
        raise ValueError("remember: can't be combined with where")
    draw = _Draw(_Plan(index, wish), member)
    rows = index.get_queryset().filter(where).order_by()
    for band in range(len(draw.plan.bands)):
        found = _Sieve(draw, band, source, rows).run()
        if len(found) >= wish.n:
            break
    return found


def recommend_many(
    index: RankIndex, ask: Callable[[Callable[[Source], Any]], Any], members: Iterable[Any], wish: Wish
) -> Iterator[tuple[Any, Recommendations | None]]:
    """Each of ``members`` with random members near it, None for one that is not ranked; in few round trips.

    ``ask``: puts a question to a source.
    """
    plan = _Plan(index, wish)  # what is nonsense is said at once, and not to whoever takes the first answer

    def answers() -> Iterator[tuple[Any, Recommendations | None]]:
        for batch in _batched(_with_rows(index, members), _MANY):
            draws = [_Draw(plan, row) for _, row in batch if row is not None]
            requests = [draw.request() for draw in draws]
            samples = iter(zip(draws, ask(lambda source: source.sample_many(requests)), strict=True))  # noqa: B023
            for member, row in batch:
                draw, sample = next(samples) if row is not None else (None, None)
                yield member, draw.answer(sample) if draw and sample else None

    return answers()


class _Plan:
    """A wish, checked and put into the words of a source."""

    def __init__(self, index: RankIndex, wish: Wish) -> None:
        self.index, self.n, self.seed = index, wish.n, wish.seed
        ceiling = get_settings().max_n
        if isinstance(wish.n, bool) or not isinstance(wish.n, int) or not 1 <= wish.n <= ceiling:
            raise ValueError(f"n: expected a whole number from 1 to {ceiling}, not {wish.n!r}")
        self.reverse, self.method = index.ordering.first.descending, index.get_ranking_method()
        if wish.ranks is None:
            self.measure = "exact" if index.ordering.is_wide else "score"
            self.bands = _bands(index, wish.band, wish.widen)
            self.distances = [_distances(index, name, band) for name, band in self.bands]
        else:
            if wish.band is not None:
                raise ValueError("ranks: give a band of scores, or one of ranks, not both")
            self.measure = "ranks"
            self.bands = [("ranks", _pair("ranks", wish.ranks)), *_steps(wish.widen)]
            self.distances = [_places(name, band, self.reverse) for name, band in self.bands]
        self.remember = _microseconds(wish.remember)
        if isinstance(wish.exclude, (str, bytes)) or not isinstance(wish.exclude, Iterable):
            raise ValueError(f"exclude: expected members, not {wish.exclude!r}")
        self.exclude = list(wish.exclude)


class _Draw:
    """One member's draw by a plan."""

    def __init__(self, plan: _Plan, member: Any) -> None:
        self.plan, self.index, self.member = plan, plan.index, member
        self.text = plan.index.to_text(member)
        self.barred = {
            "exclude": plan.exclude,
            "get_excluded()": list(_excluded_by_index(self.index, member)),
        }
        """Whom not to offer, by who says so."""

        # One stream for all samples of a call, so that a seed fixes every one of them.
        self.numbers = os.urandom if plan.seed is None else random.Random(plan.seed).randbytes  # noqa: S311 - not for secrets

    def excluded(self) -> Excluded:
        """Whom not to offer, in the form that is the cheapest to send."""
        barred = list(chain.from_iterable(self.barred.values()))
        if not barred:
            return ()
        if self.index.has_integer_pk and set(map(type, barred)) == {int}:
            # In a narrowed ranking the asking one may still stand where it stood some seconds ago.
            barred.append(int(self.text))
            if min(barred) > -EXACT and max(barred) < EXACT:
                return barred
            barred.pop()
        return [self.index.to_text(one, name) for name, members in self.barred.items() for one in members]

    def request(self, **other: Any) -> dict[str, Any]:
        """What ``sample_nearby()`` is asked."""
        plan = self.plan
        return {
            "member": self.text,
            "wanted": plan.n,
            "reverse": plan.reverse,
            "bands": plan.distances,
            "excluded": self.excluded(),
            "numbers": self.numbers,
            "measure": plan.measure,
            "method": plan.method,
            "remember": plan.remember,
            **other,
        }

    def answer(self, sample: Sample | None) -> Recommendations:
        if sample is None:
            raise NotRanked(f"{self.member!r} is not in the index {self.index.name!r}")
        to_entry, size, drawn = self.index.to_entry, sample.size, sample.drawn
        reverse = self.plan.reverse
        if size is None:
            found = sorted(drawn, reverse=reverse)
            entries = [to_entry(who, score, None) for _, who, score in found]
        elif sample.before is not None:
            numbered = sorted(zip(drawn, sample.before, strict=True), reverse=reverse)
            entries = [to_entry(who, score, before + 1) for (_, who, score), before in numbered]
        elif reverse:
            entries = [to_entry(who, score, size - at) for at, who, score in sorted(drawn, reverse=True)]
        else:
            entries = [to_entry(who, score, at + 1) for at, who, score in sorted(drawn)]
        return Recommendations(self.index, entries, self.plan.bands[sample.band][1], sample.candidates)


class _Sieve:
    """Members of one band, drawn and asked about in batches until enough have passed or nobody is left."""

    def __init__(self, draw: _Draw, band: int, source: Source, rows: models.QuerySet[Any]) -> None:
        self.draw, self.band, self.source, self.rows = draw, band, source, rows
        self.better = (draw.plan.n + 1) // 2
        """How many are wanted of those who rank better."""

    def run(self) -> Recommendations:
        draw, tried, size = self.draw, list[Any](), max(8, 2 * self.draw.plan.n)
        split, to_pk = draw.index.layout.split, draw.index.from_bytes
        draw.barred["where"] = tried
        passed: tuple[list[Any], list[Any]] = [], []  # of those who rank better, and of the others
        while True:
            size = min(size, get_settings().max_n)
            distances = [draw.plan.distances[self.band]]
            sample = self.source.sample_nearby(**draw.request(wanted=size, bands=distances))
            if sample is None:
                return draw.answer(None)
            pks = {card[1]: split(card[1])[1] for card in sample.drawn}
            good = self.passing(pks.values())
            better = 0
            for number, card in enumerate(sample.drawn):
                is_better = (card[0] >= sample.position) == draw.plan.reverse
                better += is_better
                if pks[card[1]] in good:
                    passed[not is_better].append((card, sample.before and sample.before[number]))
            tried.extend(map(to_pk, pks.values()))
            # A side that gave less than its half has no more to give.
            wants = self.better, draw.plan.n - self.better
            ended = better < (size + 1) // 2, len(sample.drawn) - better < size // 2
            enough = sum(map(len, passed)) >= draw.plan.n
            short = [
                len(side) < want and not over for side, want, over in zip(passed, wants, ended, strict=True)
            ]
            if len(sample.drawn) < size or len(tried) >= _MOST_TRIED or (enough and not any(short)):
                break
            size *= 2
        chosen = self.pick(*passed)
        before = None if sample.before is None else [before for _, before in chosen]
        return draw.answer(sample._replace(band=self.band, drawn=[card for card, _ in chosen], before=before))

    def pick(self, better: list[Any], worse: list[Any]) -> list[Any]:
        """Half of each side, with the odd one from the better; what one side lacks the other gives."""
        n = self.draw.plan.n
        first = better[: max(self.better, n - len(worse))]
        return first + worse[: n - len(first)]

    def passing(self, members: Iterable[bytes]) -> set[bytes]:
        index = self.draw.index
        pks = list(map(index.from_bytes, members))
        limit = connections[index.get_using()].features.max_query_params
        good: set[bytes] = set()
        # The condition may have parameters of its own.
        for chunk in _batched(pks, limit // 2 if limit else len(pks)):
            found = self.rows.filter(pk__in=chunk).values_list("pk", flat=True)
            good.update(index.to_text(pk).encode() for pk in found)
        return good


def _batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _with_rows(index: RankIndex, members: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each member with what ``get_excluded()`` takes: its row where there is such a hook, None where it has none."""
    if not index.has_excluded:
        yield from ((member, member) for member in members)
        return
    for batch in _batched(members, _MANY):
        pks = [None if isinstance(one, models.Model) else index.parse_pk(one) for one in batch]
        asked = [pk for pk in pks if pk is not None]
        rows = {row.pk: row for row in models.QuerySet[Any](index.model).filter(pk__in=asked)}
        for one, pk in zip(batch, pks, strict=True):
            yield one, one if pk is None else rows.get(pk)


def _microseconds(span: timedelta | None) -> int | None:
    if span is None:
        return None
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f"remember: expected a positive timedelta, not {span!r}")
    return span // timedelta(microseconds=1)


def _places(name: str, band: tuple[Any, Any], reverse: bool) -> tuple[Number, Number]:
    """How many ranks below and above, as positions: below is who ranks worse."""
    for distance in band:
        if isinstance(distance, bool) or not isinstance(distance, int) or distance < 0:
            raise ValueError(f"{name}: expected a number of ranks, not {distance!r}")
    below, above = band
    return (below, above) if reverse else (above, below)


def _bands(index: RankIndex, band: Band | None, widen: Sequence[Band]) -> list[tuple[str, tuple[Any, Any]]]:
    """The bands to try in turn as (parameter, (below, above))."""
    if band is None:
        band = index.get_band()
    if band is None:
        raise ValueError(f"band: {type(index).__name__} has no default band, so one must be given")
    return [("band", _pair("band", band)), *_steps(widen)]


def _steps(widen: Sequence[Band]) -> list[tuple[str, tuple[Any, Any]]]:
    if isinstance(widen, str) or not isinstance(widen, Sequence):
        raise ValueError(f"widen: expected a sequence of bands, not {widen!r}")
    return [("widen", _pair("widen", step)) for step in widen]


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


def _excluded_by_index(index: RankIndex, member: Any) -> Iterable[Any]:
    """What ``get_excluded()`` says of the row; a primary key is looked up first."""
    if not index.has_excluded:
        return ()
    if not isinstance(member, models.Model):
        row = models.QuerySet[Any](index.model).filter(pk=member).first()
        if row is None:
            raise NotRanked(f"{member!r} is not in the index {index.name!r}")
        member = row
    return index.get_excluded(member)
