"""The readable side of an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from django.db import models

from .conf import get_settings
from .engine import reader_of
from .entries import Entries, Entry, Recommendations
from .exceptions import FilterTooLarge, IndexUnavailable, NotRanked
from .filters import Condition, covering, parse_conditions, plan, uncovered
from .recommendations import Wish
from .requests.counts import CountFacet, Size
from .requests.groups import forget_seen
from .requests.pages import Bound, Page, PageAround, PageAt, PageBetween
from .requests.positions import BarePosition, BareScore, Locate, Location
from .requests.request import Question, Several, Steps
from .requests.view import ALL, View
from .sieve import Sieve
from .sql.reader import SqlReader

if TYPE_CHECKING:
    from .engine.reader import Reader
    from .index import Band, RankIndex
    from .store import Store

__all__ = ["Ranking"]

Answer = TypeVar("Answer")

_PAGE_LIMIT: Final = 10_000
"""The most members that one page may have: reading it blocks the server."""


_MANY: Final = 200
"""Members that ``recommend_many()`` asks for in one round trip."""


class Ranking:
    """What can be asked of an index: ``PlayerRank.ranking``; of some of its members: ``.filter(region="kantou")``.

    A member is given as an instance of the model or as its primary key. Every method raises
    :exc:`~django_zrank.IndexUnavailable` where the index is not built or Redis can't be reached, after the
    timeout of its alias, and :exc:`~django_zrank.exceptions.FilterTooLarge` where no declared facet covers a
    combination of filters and too many members pass it. Every method is one round trip to Redis unless it says
    otherwise.
    """

    def __init__(self, index: RankIndex, conditions: Sequence[Condition] = ()) -> None:
        self.index = index
        self.conditions = tuple(conditions)
        """What the members must pass; empty for all."""

        scope = plan(index, self.conditions) if conditions else ALL
        self.view = View(index.layout, scope, index.ordering.first.descending, index.get_ranking_method())

    @property
    def store(self) -> Store:
        return self._reader.store

    @property
    def _reader(self) -> Reader:
        return reader_of(self.index)

    def __repr__(self) -> str:
        narrowed = "".join(
            f".{'exclude' if one.negated else 'filter'}({dict(one.values)})" for one in self.conditions
        )
        return f"<Ranking of {self.index!r}{narrowed}>"

    # Which members

    def filter(self, **conditions: Any) -> Ranking:
        """The ranking of those who have these values: ``filter(region="kantou", platform__in=["pc", "ps"])``.

        Names are paths that ``facets`` declares, and ``group``. All conditions must hold; ``__in`` takes several
        values, any of which will do. What one declared facet covers costs what the whole index costs. Other
        combinations are computed, kept for some seconds, and limited in size; ``recommend()`` tests members one by
        one first.

        Raises ``ValueError`` for what is no facet, or no value of it.
        """
        return self._narrow(conditions, negated=False)

    def exclude(self, **conditions: Any) -> Ranking:
        """The ranking of those who don't have these values. Of several, those who don't have all of them together."""
        return self._narrow(conditions, negated=True)

    def _narrow(self, given: dict[str, Any], *, negated: bool) -> Ranking:
        found = parse_conditions(self.index, given, negated=negated)
        return type(self)(self.index, (*self.conditions, *found))

    # Recommending

    def recommend(
        self,
        member: Any,
        n: int = 10,
        *,
        band: Band | None = None,
        ranks: int | tuple[int, int] | None = None,
        exclude: Iterable[Any] = (),
        widen: Sequence[Band] = (),
        remember: timedelta | None = None,
        where: models.Q | None = None,
        seed: int | str | bytes | None = None,
    ) -> Recommendations:
        """``n`` random distinct members whose score is near ``member``'s, half ranked before it, half after.

        On each side every set of candidates is equally likely; an odd one comes from before; what one side
        lacks the other gives. Fewer than ``n`` come back only where there are fewer. ``member`` itself need not pass
        the filters of this ranking.

        ``band``: how far a score may lie from mine, ends included: one distance, or (below, above). Default:
        the index's. ``ranks``: in its place, how many ranks away: one number, or (worse, better). ``widen``: further
        bands, tried in turn while there are fewer than ``n``. ``exclude``: members not to offer, beside those of
        ``get_excluded()``. ``seed``: the same draw every time, for tests.

        ``remember``: for how long those drawn are not drawn again for ``member``; when nobody else is left, those
        shown longest ago come first. See :meth:`forget`.

        ``where``: a condition that only the database can tell. Members are drawn in growing batches, one round trip
        and one query each, until ``n`` pass, nobody is left, or 5,000 were tried: then fewer may come back. It
        can't be combined with ``remember``.

        Raises :exc:`~django_zrank.NotRanked`, and ``ValueError`` for nonsense (n < 1, a negative band).
        """
        wish = Wish.parse(
            self.index,
            self.view,
            n,
            band=band,
            ranks=ranks,
            exclude=exclude,
            widen=widen,
            remember=remember,
            seed=seed,
        )
        draw = wish.by(member)
        if where is None:
            sample = self._ask(draw)
        elif remember is not None:
            raise ValueError("remember: can't be combined with where")
        else:
            sieve = Sieve(wish, draw, self.index.get_queryset().filter(where).order_by())
            sample = self._ask(Steps(sieve.steps))
        if sample is None:
            raise self._not_ranked(member)
        return wish.answer(sample)

    def recommend_many(
        self,
        members: Iterable[Any],
        n: int = 10,
        *,
        band: Band | None = None,
        ranks: int | tuple[int, int] | None = None,
        exclude: Iterable[Any] = (),
        widen: Sequence[Band] = (),
        remember: timedelta | None = None,
    ) -> Iterator[tuple[Any, Recommendations | None]]:
        """Each of ``members`` with what ``recommend()`` draws for it, None for one that is not ranked.

        One round trip for 200 members; where the index has ``get_excluded()``, what that asks of each, and one query
        for the rows of those that were given by their primary keys.
        """
        # What is wrong is said at once, and not to whoever takes the first answer.
        wish = Wish.parse(
            self.index, self.view, n, band=band, ranks=ranks, exclude=exclude, widen=widen, remember=remember
        )
        return self._recommend_each(members, wish)

    def _recommend_each(
        self, members: Iterable[Any], wish: Wish
    ) -> Iterator[tuple[Any, Recommendations | None]]:
        for batch in wish.by_each(members, _MANY):
            draws = [draw for _, draw in batch if draw is not None]
            samples = iter(self._ask(Several(draws)) if draws else ())
            for member, draw in batch:
                sample = None if draw is None else next(samples)
                yield member, None if sample is None else wish.answer(sample)

    def forget(self, member: Any) -> None:
        """Let those shown to ``member`` (see ``remember``) be drawn again."""
        self._reader.run(partial(forget_seen, member=self.index.to_text(member)))

    # Members by their places

    def top(self, n: int = 10) -> Entries:
        """The best ``n``."""
        return self._page(0, _at_most("n", n))

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Entries: ...
    def __getitem__(self, place: int | slice) -> Entry | Entries:
        """``ranking[0]`` is the best, ``ranking[10:20]`` the second page of ten, as of a queryset."""
        if isinstance(place, slice):
            first, last = place.start or 0, place.stop
            if place.step not in (None, 1) or first < 0 or last is None or last < 0:
                raise ValueError(f"a slice needs an end, and neither a step nor negative places: {place}")
            return self._page(first, _at_most("the slice", max(0, last - first), at_least=0))
        if place < 0:
            raise ValueError(f"a place can't be negative: {place}")
        entries = self._page(place, 1)
        if not entries:
            raise IndexError(f"nobody stands at the place {place}")
        return entries[0]

    def at_rank(self, rank: int) -> Entry:
        """Who stands at ``rank``, 1 is best, counted one by one whatever the ranking method. Raises ``NotRanked``."""
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank: expected a whole number from 1, not {rank!r}")
        entries = self._page(rank - 1, 1)
        if not entries:
            raise NotRanked(f"nobody in the index {self.index.name!r} has the rank {rank}")
        return entries[0]

    def _page(self, first: int, count: int) -> Entries:
        return self._entries(self._ask(PageAt(first, count)))

    def around(self, member: Any, n: int = 10) -> Entries:
        """``n`` members with ``member`` in their middle; near the ranking's ends away from it, so that the page is full
        wherever the ranking has so many. Raises :exc:`~django_zrank.NotRanked`."""
        page = self._ask(PageAround(self.index.to_text(member), _at_most("n", n)))
        if page is None:
            raise self._not_ranked(member)
        return self._entries(page)

    def between(self, low: Any = None, high: Any = None, n: int = 100) -> Entries:
        """The best ``n`` of those with a score from ``low`` to ``high``, ends included; None for no bound."""
        return self._entries(self._between(low, high, _at_most("n", n)))

    def _between(self, low: Any, high: Any, count: int) -> Page:
        bounds = [self._bound("low", low), self._bound("high", high)]
        best, worst = reversed(bounds) if self.view.reverse else bounds
        return self._ask(PageBetween(best, worst, count))

    # Members by their names

    def rank(self, member: Any) -> int:
        """The rank of ``member``, 1 is best. Raises :exc:`~django_zrank.NotRanked`."""
        if self._is_bare and self.view.method == "ordinal":
            position = self._ask(BarePosition(self.index.to_text(member)))
            if position is None:
                raise self._not_ranked(member)
            return position + 1
        return self._locate(member)[1].before + 1

    def score(self, member: Any) -> Any:
        """The score of ``member``, in the field's own type. Raises :exc:`~django_zrank.NotRanked`."""
        if self._is_bare:
            score = self._ask(BareScore(self.index.to_text(member)))
            if score is None:
                raise self._not_ranked(member)
            return self.index.ordering.first.kind.decode(score)
        return self.entry(member).score

    def entry(self, member: Any) -> Entry:
        """The rank, the score and all criteria of ``member``. Raises :exc:`~django_zrank.NotRanked`."""
        return self._to_entry(self._locate(member)[1])

    def percentile(self, member: Any) -> float:
        """How many percent of the others don't rank better than ``member``: 100 is best, 0 the last of all.

        It is SQL's ``PERCENT_RANK()`` the other way round. Raises :exc:`~django_zrank.NotRanked`.
        """
        view = self.view
        if view.method == "dense":
            view = replace(view, method="competition")
        size, location = self._locate(member, view)
        return 100.0 if size == 1 else 100.0 * (1 - location.before / (size - 1))

    def _locate(self, member: Any, view: View | None = None) -> tuple[int, Location]:
        size, (location,) = self._ask(Locate([self.index.to_text(member)]), view)
        if location is None:
            raise self._not_ranked(member)
        return size, location

    def ranks(self, members: Iterable[Any]) -> dict[Any, int | None]:
        """The rank of each of ``members`` by its primary key, None for one that is not ranked."""
        pks = self._pks(members)
        return {
            pk: None if location is None else location.before + 1
            for pk, location in zip(pks.values(), self._ask(Locate(list(pks))).found, strict=True)
        }

    def members(self, members: Iterable[Any]) -> Entries:
        """Those of ``members`` that are ranked, best first, each with its rank among all: the board of my friends."""
        locations = self._ask(Locate(list(self._pks(members)))).found
        found = sorted(filter(None, locations), key=lambda location: location.position)
        return Entries(self.index, list(map(self._to_entry, found)))

    def _pks(self, members: Iterable[Any]) -> dict[str, Any]:
        """Each member as Redis stores it, and its primary key."""
        texts = dict.fromkeys(self.index.to_text(member, "members") for member in members)
        _at_most("members", len(texts), at_least=0)
        return {text: self.index.from_bytes(text.encode()) for text in texts}

    # Numbers

    def rank_of_score(self, score: Any) -> int:
        """The rank that a member with ``score`` would have, before all who have it already."""
        bound = self._bound("score", score)
        return self._ask(PageBetween(bound, Bound(), 0)).before + 1

    def count(self) -> int:
        """How many members are ranked."""
        return self._ask(Size())

    def count_between(self, low: Any = None, high: Any = None) -> int:
        """How many have a score from ``low`` to ``high``, ends included; None for no bound."""
        return self._between(low, high, 0).following

    def counts(self, *paths: str) -> dict[Any, int]:
        """How many members have each value of a facet: ``counts("region")``; of a composite one, each tuple of values:
        ``counts("region", "platform")``. Values that nobody has are left out."""
        facet = self.index.faceting.of(paths)
        if facet is None:
            raise ValueError(
                f"counts: the index {self.index.name!r} has no facet {', '.join(paths) or '(none)'}"
            )
        covered = covering(facet, self.index, self.conditions)
        found = self._ask(CountFacet(facet, covered))
        order = [facet.paths.index(path) for path in paths]
        counts: dict[Any, int] = {}
        for name, count in found.items():
            values = facet.decode(name.decode())
            counts[values[0] if len(paths) == 1 else tuple(values[at] for at in order)] = count
        return counts

    # How

    @property
    def _is_bare(self) -> bool:
        """Whether these are bare primary keys in one sorted set, which Redis's own commands can be asked of."""
        order = self.index.ordering
        return not (order.width or order.is_wide) and self.view.ranking is not None

    def _bound(self, parameter: str, value: Any) -> Bound:
        """A score to begin or end with. Raises ``ValueError``, naming the ``parameter``."""
        if value is None:
            return Bound()
        try:
            score, exact = self.index.ordering.place_of(value)
        except ValueError as error:
            raise ValueError(f"{parameter}: {error}") from None
        return Bound(repr(score), exact, value)

    def _entries(self, page: Page) -> Entries:
        """The members of a page with their ranks."""
        to_entry, split, method = self.index.to_entry, self.index.layout.split, self.view.method
        entries, rank, last = [], page.before + 1, None
        for at, (stored, score) in enumerate(page.members, page.first + 1):
            value = (score, split(stored)[0])
            if method == "ordinal":
                rank = at
            elif last is not None and value != last:
                rank = at if method == "competition" else rank + 1
            last = value
            entries.append(to_entry(stored, score, rank))
        return Entries(self.index, entries)

    def _to_entry(self, location: Location) -> Entry:
        return self.index.to_entry(location.stored, location.score, location.before + 1)

    def _not_ranked(self, member: Any) -> NotRanked:
        return NotRanked(f"{member!r} is not in the index {self.index.name!r}")

    def _ask(self, question: Question[Answer], view: View | None = None) -> Answer:
        """Query Redis, or the fallback that ``ZRANK["UNHEALTHY"]`` names where it can't be believed."""
        unhealthy, view = get_settings().unhealthy, view or self.view
        try:
            self._reader.require_health(stale_will_do=unhealthy == "serve_stale")
            return self._reader.answer(question, view)
        except FilterTooLarge as error:
            counted = question.facet.paths if isinstance(question, CountFacet) else ()
            declare = uncovered(self.conditions, counted)
            hint = f"; declare {declare}" if declare else ""
            raise FilterTooLarge(f"{error}{hint}") from None
        except IndexUnavailable:
            if unhealthy != "database":
                raise
            return SqlReader(self.index, self.conditions).answer(question, view)


def _at_most(parameter: str, count: int, at_least: int = 1) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not at_least <= count <= _PAGE_LIMIT:
        raise ValueError(f"{parameter}: expected {at_least} to {_PAGE_LIMIT:,}, not {count!r}")
    return count
