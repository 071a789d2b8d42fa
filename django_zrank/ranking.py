"""Queries of an index: its members, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, overload

from django.db import models
from django.utils.module_loading import import_string

from .codec.cursors import encode_cursor, sort_key_at
from .codec.entry import Entry, LateRanks, RankBySortKey, Ranked
from .codec.filters import Condition, covering, narrowed_by, uncovered
from .codec.units import Band
from .declaration import Index, Member
from .entries import Entries, EntryPage, Recommendations
from .exceptions import FilterTooLarge, IndexUnavailable, NotRanked
from .extension import fallback, narrowing, sources
from .iteration import batched
from .members import members_of
from .methods import method_of, methods
from .queries.counts import CountFacet, Size
from .queries.draws import Draw, Sample
from .queries.pages import Bound, Page, PageAround, PageAt, PageBeside, PageBetween, TopByCommand
from .queries.positions import Locate, Location, PositionByCommand, ScoreByCommand
from .queries.request import Blocking
from .queries.steps import IS_SYNC, Answer, Question, Several, Steps, drive
from .queries.view import View
from .recommendations import condition, excluded_by_index, excluding, parse_draw, parse_point, recommended
from .redis import reader_of
from .redis.verbs import Batches, async_iterator, async_version, in_batches, listed, verb
from .remember import Remembering
from .statistics import Statistics

if TYPE_CHECKING:
    from .redis.reader import Reader
    from .store import Store

__all__ = ["Ranking"]

_FEW: Final = 10
"""The most best members that a plain command reads."""

_PAGE_LIMIT: Final = 10_000
"""The most members of a page."""

_PAGE: Final = 1000
"""Members that iteration reads in one round trip."""

_MANY: Final = 200
"""Members whose exclusions ``recommend_many()`` reads at once."""

_AT_ONCE: Final = 100
"""The most members that ``recommend_many()`` draws in one round trip."""


class Ranking(
    Remembering[Member],
    Statistics[Member],
    Generic[Member],
):
    """The members of an index, best first: all members (``PlayerRank.ranking``) or some (``.filter(region="kanto")``).

    Pass members as instances of the model or as primary keys. Every method raises
    :exc:`~django_zrank.IndexUnavailable` if the index is not built, or if Redis can't be reached within the timeout of
    its alias. It raises :exc:`~django_zrank.exceptions.FilterTooLarge` if no declared facet covers a combination of
    filters and the smallest filter has more members than ``ZRANK["MAX_SCAN"]``. A method takes one round trip to Redis,
    or more if thousands of members are read or no facet covers the filters.
    """

    def __init__(self, index: Index[Member]) -> None:
        self.index = index
        self.conditions: tuple[Condition, ...] = ()
        """The filters that the members pass; empty for all."""

        self.server: str | None = None
        """The server to read from, "primary" or another source; None for what ``ZRANK["READS"]`` says."""

        self.view = View(
            index.finding, reverse=index.ordering.first.descending, method=index.get_ranking_method()
        )

    def __repr__(self) -> str:
        steps = [f".{'exclude' if one.negated else 'filter'}({dict(one.values)})" for one in self.conditions]
        if self.view.method != self.index.get_ranking_method():
            steps.append(f".by({self.view.method!r})")
        if self.view.reverse != self.index.ordering.first.descending:
            steps.append(".reversed()")
        if self.server is not None:
            steps.append(f".using({self.server!r})")
        return f"<Ranking of {self.index!r}{''.join(steps)}>"

    def __copy__(self) -> Self:
        """A copy, 7 µs sooner than without this method."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def filter(self, **conditions: Any) -> Self:
        """The ranking of the members that have these values: ``filter(region="kanto", platform__in=["pc", "ps"])``.

        Names are paths declared in ``facets``, and filters that parts add, such as ``group``. All conditions must hold.
        ``__in`` takes several values, one of which must match. Filters that one declared facet covers are as fast as
        the whole index. Other combinations are computed in pieces and kept for some seconds, but ``recommend()`` first
        tests members one by one.

        Raises ``ValueError`` for an unknown facet, an invalid value, or too many.
        """
        return self._narrow(conditions, negated=False)

    def exclude(self, **conditions: Any) -> Self:
        """The ranking of the members that don't have these values, or, given several, don't have all of them."""
        return self._narrow(conditions, negated=True)

    def _narrow(self, given: dict[str, Any], *, negated: bool) -> Self:
        narrowed = copy(self)
        narrowed.conditions, ranking = narrowed_by(self.index, self.conditions, given, negated=negated)
        narrowed.view = narrowed._uncovered() if ranking is None else self.view.of(ranking)
        return narrowed

    def _uncovered(self) -> View:
        """The view of the members that pass filters that no one ranking holds. Raises ``ValueError``."""
        if not narrowing:
            declare = uncovered(self.index, self.conditions)
            hint = f"; declare {declare}" if declare else ""
            raise ValueError(
                f"{self._name}: filters can ask for one value of each path of one declared facet{hint}"
            )
        view: View = import_string(narrowing[-1])(self.index, self.view, self.conditions)
        return view

    def by(self, method: str) -> Self:
        """The same members with ranks by another method, ``"ordinal"`` or ``"competition"``. Other methods rank only
        the indexes that declare them, because these keep what they count.

        Raises ``ValueError``.
        """
        if method not in methods:
            raise ValueError(f"by: expected one of {', '.join(methods)}, not {method!r}")
        if (kept := method_of(method).keeps) and self.index.layout.beside != method:
            raise ValueError(f"by: the index {self.index.name!r} keeps no {kept} for {method} ranks")
        return self._with_view(method=method)

    def reversed(self) -> Self:
        """The same members in the other direction: the worst has rank 1, and comes first."""
        return self._with_view(reverse=not self.view.reverse)

    def using(self, server: str) -> Self:
        """The same ranking, read from the ``"primary"`` or from another source, such as a ``"replica"``, regardless of
        the setting ``ZRANK["READS"]``.

        Another source answers reads that write nothing. Its answers contain everything that this process has pushed,
        and may be some seconds behind other processes. If it can't answer, the primary does.

        Raises ``ValueError``.
        """
        choices = ("primary", *sources)
        if server not in choices:
            raise ValueError(f"using: expected {' or '.join(map(repr, choices))}, not {server!r}")
        chosen = copy(self)
        chosen.server = server
        return chosen

    def within(self, *, seconds: float | None = None, scan: int | None = None) -> Self:
        """The same ranking, with limits on filters that no facet covers, for requests that you don't trust. A call
        waits at most ``seconds`` for what answers them, and then raises
        :exc:`~django_zrank.exceptions.FilterNotReady`. If computing it would read more than ``scan`` members, or
        ``counts()`` more values, it raises :exc:`~django_zrank.exceptions.FilterTooLarge`. The limits of the settings
        apply in any case.

        Raises ``ValueError``.
        """
        for name, value in (("seconds", seconds), ("scan", scan)):
            if value is not None and not value >= 0:
                raise ValueError(f"within: expected {name} of 0 or more, not {value!r}")
        bounds = {"seconds": seconds, "scan": scan}
        return self._with_view(**{name: value for name, value in bounds.items() if value is not None})

    def _with_view(self, **changed: Any) -> Self:
        """Return a copy of this ranking whose view has other attributes."""
        ranking = copy(self)
        ranking.view = replace(self.view, **changed)
        return ranking

    # Recommendations

    @verb
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
    ) -> Steps[Recommendations[Member]]:
        """``n`` random distinct members whose scores are near ``member``'s, half ranked above it, half below.

        On each side, every set of candidates is equally likely. If ``n`` is odd, the extra member comes from above. If
        one side has too few members, the other side makes up for it. Fewer than ``n`` are returned only if the band
        contains fewer. ``member`` itself need not pass the filters of this ranking.

        ``band``: the most that a score may differ from ``member``'s, ends included: one distance, or (below, above).
        Default: the index's. ``ranks``: the same in ranks, instead of ``band``: one number, or (worse, better).
        ``widen``: further bands, tried in turn while there are fewer than ``n`` members. ``exclude``: members not to
        draw, besides those of ``get_excluded()``. ``seed``: draws the same members every time, for tests.

        ``remember``: the time for which the drawn members are not drawn for ``member`` again. When no others are left,
        those shown longest ago come first. The last 1,000 are remembered. See :meth:`forget`.

        ``where``: a condition that only the database can test. Members are drawn in growing numbers, with one round
        trip and one query each, until ``n`` pass, nobody is left, or 5,000 have been tried. In the last case, fewer
        than ``n`` may be returned. ``where`` can't be combined with ``remember``.

        Raises :exc:`~django_zrank.NotRanked`, and ``ValueError`` for an invalid parameter (n < 1, a negative band).
        """
        index = self.index
        draw = parse_draw(
            index,
            self.view,
            index.to_text(member),
            n,
            band=band,
            ranks=ranks,
            widen=widen,
            remember=remember,
            seed=seed,
            sort_key=index.sort_key_of(member),
        )
        return self._draw(draw, member, exclude, where)

    arecommend = async_version(recommend)

    @verb
    def near(
        self,
        at: Any,
        n: int = 10,
        *,
        band: Band | None = None,
        ranks: int | tuple[int, int] | None = None,
        exclude: Iterable[Any] = (),
        widen: Sequence[Band] = (),
        where: models.Q | None = None,
        seed: int | str | bytes | None = None,
    ) -> Steps[Recommendations[Member]]:
        """``n`` random distinct members near a score, drawn as :meth:`recommend` draws them near a member: for a
        signup, a bot, or a member that isn't ranked.

        ``at``: a score in the field's own type, which ranks ahead of the members that have it, as in
        :meth:`rank_of_score`; or an instance of the model with all criteria loaded, which need not be ranked or saved.
        The instance itself is neither drawn nor counted, even if the ranking has it with another score. If it is saved,
        ``get_excluded()`` is called for it.

        The other parameters are those of :meth:`recommend`. Raises ``ValueError``.
        """
        is_row = isinstance(at, models.Model)
        text = self.index.to_text(at, "at") if is_row and at.pk is not None else None
        # A default may have given a primary key to a row that isn't saved.
        row = at if is_row and not at._state.adding else None
        point = parse_point(self.index, self.view, at)
        draw = parse_draw(
            self.index, self.view, text, n, band=band, ranks=ranks, widen=widen, seed=seed, at=point
        )
        return self._draw(draw, row, exclude, where)

    anear = async_version(near)

    def _draw(
        self, draw: Draw, member: Any, exclude: Iterable[Any], where: models.Q | None
    ) -> Steps[Recommendations[Member]]:
        """Draw for ``member``, or for nobody if it is None. Raises ``NotRanked``."""
        index = self.index
        if where is not None:
            draw = draw._replace(where=condition(index, where))
            if draw.avoiding is not None:
                raise ValueError("remember: can't be combined with where")
        if not isinstance(exclude, (tuple, list)):
            exclude = yield from listed("exclude", exclude)
        if exclude or index.has_excluded:
            own: list[Any] | None = []
            if member is not None:
                (own,) = yield from excluded_by_index(index, [member])
            if own is None:
                raise self._not_ranked(member)
            draw = excluding(index, draw, {"exclude": exclude, "get_excluded()": own})
        sample = yield from self._ask(draw)
        if sample is None:
            raise self._not_ranked(member)
        its_ranks = (yield from self._ranks_of([sample])) if not sample.is_ranked else None
        return recommended(index, self.view, draw, sample, its_ranks)

    @in_batches
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
    ) -> Batches[tuple[Any, Recommendations[Member] | None]]:
        """Yield each of ``members`` with the members that ``recommend()`` draws for it, or with None if it is not
        ranked.

        One round trip draws up to 100 members, or fewer if a draw costs more. If the index has ``get_excluded()``,
        every 200 ``members`` also take the queries of ``get_excluded_many()``, and one query for the rows of members
        given by primary key.
        """
        draw = parse_draw(
            self.index, self.view, "", n, band=band, ranks=ranks, widen=widen, remember=remember
        )
        excluded = members_of("exclude", exclude)
        batches = batched(members_of("members", members), _MANY)

        def steps() -> Steps[list[tuple[Any, Recommendations[Member] | None]]]:
            nonlocal excluded
            excluded = yield from listed("exclude", excluded)
            # The members may be given by a query.
            batch: list[Any] = yield Blocking(partial(next, batches, []))
            return (yield from self._recommend_each(batch, draw, excluded))

        return steps

    arecommend_many = async_iterator(recommend_many)

    def _recommend_each(
        self, members: Sequence[Any], draw: Draw, excluded: Sequence[Any]
    ) -> Steps[list[tuple[Any, Recommendations[Member] | None]]]:
        index = self.index
        hidden = yield from excluded_by_index(index, members)
        draws = [
            excluding(
                index,
                draw._replace(member=index.to_text(member), sort_key=index.sort_key_of(member)),
                {"exclude": excluded, "get_excluded()": own},
            )
            for member, own in zip(members, hidden, strict=True)
            if own is not None
        ]
        at_once = max(1, _AT_ONCE // draw.wanted)
        samples = (yield from self._ask(Several(draws, at_once))) if draws else []
        found: list[Recommendations[Member] | None] = []
        for at in range(0, len(samples), at_once):
            some = samples[at : at + at_once]
            ranks = yield from self._ranks_of([one for one in some if one and not one.is_ranked])
            found += [one and recommended(index, self.view, draw, one, ranks) for one in some]
        results = iter(found)
        return [
            (member, None if own is None else next(results))
            for member, own in zip(members, hidden, strict=True)
        ]

    def _ranks_of(self, samples: Sequence[Sample]) -> Steps[LateRanks | RankBySortKey | None]:
        """The ranks of the members of several samples, counted in one request for all: when the first of them is used,
        or at once in coroutines, where an attribute can't wait. None if no facet covers the filters."""
        # A member that moved between two round trips may be drawn with two sort keys.
        sort_keys = list(dict.fromkeys(card[:2] for sample in samples for card in sample.drawn))
        if not sort_keys or self.view.ranking is None:
            return None
        if (yield IS_SYNC):
            return LateRanks(lambda: drive(self._count(sort_keys), reader_of(self.index).send))
        return (yield from self._count(sort_keys))

    def _count(self, sort_keys: Sequence[tuple[float, bytes]]) -> Steps[RankBySortKey]:
        """The ranks of sort keys, each the score of a member and its stored form."""
        split = self.index.layout.split
        texts = [split(stored)[1].decode() for _, stored in sort_keys]
        _, found = yield from self._ask(Locate(texts, sort_keys))
        return {sort_key: one and one.before + 1 for sort_key, one in zip(sort_keys, found, strict=True)}

    # Pages

    @verb
    def top(self, n: int = 10) -> Steps[Entries[Member]]:
        """The best ``n`` members."""
        return (yield from self._page(0, _at_most("n", n)))

    atop = async_version(top)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> Entries[Member]: ...
    def __getitem__(self, position: int | slice) -> Entry | Entries[Member]:
        """``ranking[0]`` is the best member, ``ranking[10:20]`` the second page of ten, as with a queryset."""
        if isinstance(position, slice):
            return self._slice(position.start, position.stop, position.step)
        if _position(position) < 0:
            raise ValueError(f"a position can't be negative: {position}; reversed() begins at the end")
        entries = self._slice(position, position + 1)
        if not entries:
            raise IndexError(f"there is no member at position {position}")
        return entries[0]

    @verb
    def _slice(self, first: int | None, last: int | None, step: int | None = None) -> Steps[Entries[Member]]:
        """``ranking[first:last]``: the members from the position ``first``, 0 is best, to before ``last``."""
        first = 0 if first is None else _position(first)
        if last is not None:
            _position(last)
        if step not in (None, 1) or first < 0 or (last is not None and last < 0):
            raise ValueError(f"a slice takes no step and no negative positions: {slice(first, last, step)}")
        if last is None:
            raise ValueError(
                f"a slice needs an end: [{first}:{first + 100}]; to read all members, iterate over the ranking"
            )
        return (yield from self._page(first, _at_most("the slice", max(0, last - first), at_least=0)))

    aslice = async_version(_slice)
    """The asynchronous version of a slice: ``await ranking.aslice(10, 20)``."""

    @in_batches
    def __iter__(self) -> Batches[Entry]:
        """Iterate over all members, best first, 1,000 per round trip. A member that moves meanwhile may be repeated or
        missed; no other is, as with :meth:`after`."""
        last: Entry | None = None
        is_done = False

        def steps() -> Steps[Sequence[Entry]]:
            nonlocal last, is_done
            if is_done:
                return ()
            if last is None:
                page = self._entry_page((yield from self._ask(PageAt(0, _PAGE))))
            else:
                page = yield from self._beside(last, _PAGE, is_after=True)
            is_done = not (page and page.has_next)
            last = None if is_done else page[-1]
            return page

        return steps

    __aiter__ = async_iterator(__iter__)

    @verb
    def at_rank(self, rank: int) -> Steps[Entry]:
        """The member at a position, where 1 is best. Positions are consecutive, whatever the ranking method. Raises
        :exc:`~django_zrank.NotRanked`."""
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank: expected a whole number from 1, not {rank!r}")
        entries = yield from self._page(rank - 1, 1)
        if not entries:
            raise NotRanked(f"no member of the index {self._name} has the rank {rank}")
        return entries[0]

    aat_rank = async_version(at_rank)

    def _page(self, first: int, limit: int) -> Steps[Entries[Member]]:
        by_command = self._has_plain_members and self.view.method == "ordinal"
        if by_command and not (first or self.conditions) and 0 < limit <= _FEW:
            members = yield from self._ask(TopByCommand(limit))
            ranked = [(stored, score, rank) for rank, (stored, score) in enumerate(members, 1)]
            return Entries(self.index, self.index.to_entries(ranked))
        return self._entries((yield from self._ask(PageAt(first, limit))))

    @verb
    def around(self, member: Any, n: int = 10) -> Steps[EntryPage[Member]]:
        """``n`` members with ``member`` in the middle. Near an end of the ranking, more members from the other side
        fill the page. Continue with :meth:`before` and :meth:`after`. Raises :exc:`~django_zrank.NotRanked`."""
        page = yield from self._ask(PageAround(self.index.to_text(member), _at_most("n", n)))
        if page is None:
            raise self._not_ranked(member)
        return self._entry_page(page)

    aaround = async_version(around)

    @verb
    def after(self, entry: Entry | str, n: int = 10) -> Steps[EntryPage[Member]]:
        """The ``n`` members after ``entry``, best first: the next page, if it is the last entry of this one.

        ``entry``: an entry of any page of the index, or its :meth:`cursor`. The page begins where the member stood when
        the entry was read, even if it has moved or left. A member that doesn't move is on exactly one of several pages
        that are read in this way, whatever others do. Raises ``ValueError``.
        """
        return self._beside(entry, _at_most("n", n), is_after=True)

    aafter = async_version(after)

    @verb
    def before(self, entry: Entry | str, n: int = 10) -> Steps[EntryPage[Member]]:
        """The last ``n`` members before ``entry``, best first: the previous page, if it is the first entry of this one.
        The same applies as to :meth:`after`."""
        return self._beside(entry, _at_most("n", n), is_after=False)

    abefore = async_version(before)

    def _beside(self, entry: Entry | str, n: int, *, is_after: bool) -> Steps[EntryPage[Member]]:
        try:
            score, stored = sort_key_at(self.index, entry)
        except ValueError as error:
            raise ValueError(f"entry: {error}") from None
        page = yield from self._ask(PageBeside(score, stored, n, is_after))
        # Ranks are counted from the first one on, even if that is the entry itself.
        own = int(is_after and page.members[:1] == [(stored, score)])
        return self._entry_page(page, slice(own, own + n))

    def cursor(self, entry: Entry) -> str:
        """An entry as short text from which :meth:`after` and :meth:`before` continue: its primary key and the values
        of all criteria, in URL-safe characters. It isn't encrypted. Raises ``ValueError``."""
        try:
            return encode_cursor(*sort_key_at(self.index, entry))
        except ValueError as error:
            raise ValueError(f"entry: {error}") from None

    def _entry_page(self, page: Page, shown: slice = slice(None)) -> EntryPage[Member]:
        """Make entries of those members of a page that ``shown`` selects."""
        entries, left_out = list(self._entries(page))[shown], shown.start or 0
        has_next = left_out + len(entries) < page.following
        return EntryPage(self.index, entries, page.first + left_out > 0, has_next)

    @verb
    def between(
        self, low: Any = None, high: Any = None, n: int = 100, *, offset: int = 0
    ) -> Steps[Entries[Member]]:
        """The best ``n`` members with a score from ``low`` to ``high``, ends included; None means no bound.

        ``offset``: the number of members to skip, for pages after the first.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset: expected a number of members, not {offset!r}")
        return self._entries((yield from self._ask(self._between(low, high, _at_most("n", n), offset))))

    abetween = async_version(between)

    def _between(self, low: Any, high: Any, limit: int, offset: int = 0) -> PageBetween:
        bounds = [self._bound("low", low), self._bound("high", high)]
        best, worst = reversed(bounds) if self.view.reverse else bounds
        return PageBetween(best, worst, limit, offset)

    def _bound(self, parameter: str, value: Any) -> Bound:
        """Parse a score to begin or end with. Raises ``ValueError``, naming the ``parameter``."""
        if value is None and parameter != "score":
            return Bound()
        try:
            score, exact = self.index.ordering.bound_of(value)
        except ValueError as error:
            hint = "" if parameter == "score" else "; None means no bound"
            raise ValueError(f"{parameter}: {error}{hint}") from None
        return Bound(repr(score), exact, value)

    def _entries(self, page: Page) -> Entries[Member]:
        """Make entries of the members of a page, with their ranks."""
        split, method = self.index.layout.split, self.view.method
        ranked: list[Ranked] = []
        rank, last = page.before + 1, None
        for at, (stored, score) in enumerate(page.members, page.first + 1):
            value = (score, split(stored)[0])
            if method == "ordinal":
                rank = at
            elif last is not None and value != last:
                rank = at if method == "competition" else rank + 1
            last = value
            ranked.append((stored, score, rank))
        return Entries(self.index, self.index.to_entries(ranked))

    # Lookups

    @verb
    def contains(self, member: object) -> Steps[bool]:
        """Return true if ``member`` is ranked. Raises ``ValueError`` for a value that can't be a member."""
        text = self.index.to_text(member)
        if self._has_plain_members:
            return (yield from self._ask(ScoreByCommand(text))) is not None
        return (yield from self._ask(Locate([text]))).found[0] is not None

    acontains = async_version(contains)

    def __contains__(self, member: object) -> bool:
        return self.contains(member)

    @verb
    def rank(self, member: Any) -> Steps[int]:
        """The rank of ``member``; 1 is best. Raises :exc:`~django_zrank.NotRanked`."""
        if self._has_plain_members and self.view.method == "ordinal":
            position = yield from self._ask(
                PositionByCommand(self.index.to_text(member), self.index.sort_key_of(member))
            )
            if position is None:
                raise self._not_ranked(member)
            return position + 1
        return (yield from self._locate(member))[1].before + 1

    arank = async_version(rank)

    @verb
    def score(self, member: Any) -> Steps[Any]:
        """The score of ``member``, in the field's own type. Raises :exc:`~django_zrank.NotRanked`."""
        if self._has_plain_members:
            score = yield from self._ask(ScoreByCommand(self.index.to_text(member)))
            if score is None:
                raise self._not_ranked(member)
            return self.index.ordering.first.kind.decode(score)
        return self._to_entries([(yield from self._locate(member))[1]])[0].score

    ascore = async_version(score)

    @verb
    def entry(self, member: Any) -> Steps[Entry]:
        """The rank, the score and all criteria of ``member``. Raises :exc:`~django_zrank.NotRanked`."""
        return self._to_entries([(yield from self._locate(member))[1]])[0]

    aentry = async_version(entry)

    def _locate(self, member: Any, method: str | None = None) -> Steps[tuple[int, Location]]:
        sort_key = self.index.sort_key_of(member)
        question = Locate([self.index.to_text(member)], [sort_key] if sort_key else [], checked=True)
        size, (location,) = yield from self._ask(question, self.view.by(method))
        if location is None:
            raise self._not_ranked(member)
        return size, location

    @verb
    def ranks(self, members: Iterable[Any]) -> Steps[dict[Any, int | None]]:
        """The rank of each of ``members`` by its primary key, or None if the member is not ranked."""
        pks = yield from self._pks(members)
        _, found = yield from self._ask(Locate(list(pks)))
        return {
            pk: None if location is None else location.before + 1
            for pk, location in zip(pks.values(), found, strict=True)
        }

    aranks = async_version(ranks)

    @verb
    def members(self, members: Iterable[Any]) -> Steps[Entries[Member]]:
        """Those of ``members`` that are ranked, best first, with ranks among all members, as for a list of friends."""
        _, locations = yield from self._ask(Locate(list((yield from self._pks(members)))))
        found = sorted(filter(None, locations), key=lambda location: location.position)
        return Entries(self.index, self._to_entries(found))

    amembers = async_version(members)

    def _pks(self, members: Iterable[Any]) -> Steps[dict[str, Any]]:
        """The primary key of each member, by its text in Redis."""
        given = yield from listed("members", members)
        texts = dict.fromkeys(self.index.to_text(one, "members") for one in given)
        _at_most("members", len(texts), at_least=0)
        return {text: self.index.from_bytes(text.encode()) for text in texts}

    # Counts

    @verb
    def rank_of_score(self, score: Any) -> Steps[int]:
        """The rank that a member with ``score`` would have, ahead of the members that have it already."""
        bound = self._bound("score", score)
        return (yield from self._ask(PageBetween(bound, Bound(), 0))).before + 1

    arank_of_score = async_version(rank_of_score)

    @verb
    def exists(self) -> Steps[bool]:
        """Return true if any member is ranked."""
        return (yield from self._ask(Size())) > 0

    aexists = async_version(exists)

    def __bool__(self) -> bool:
        return self.exists()

    @verb
    def count(self) -> Steps[int]:
        """The number of ranked members."""
        return (yield from self._ask(Size()))

    acount = async_version(count)

    @verb
    def count_between(self, low: Any = None, high: Any = None) -> Steps[int]:
        """The number of members with a score from ``low`` to ``high``, ends included; None for no bound."""
        return (yield from self._ask(self._between(low, high, 0))).following

    acount_between = async_version(count_between)

    @verb
    def counts(self, *paths: str) -> Steps[dict[Any, int]]:
        """The number of members with each value of a facet, ``counts("region")``, or with each tuple of values of a
        composite facet, ``counts("region", "platform")``. Values without members are left out."""
        if len(set(paths)) < len(paths):
            raise ValueError(f"counts: a path is given twice: {', '.join(map(str, paths))}")
        facet = self.index.faceting.of(paths)
        if facet is None:
            raise ValueError(
                f"counts: the index {self.index.name!r} has no facet {', '.join(map(str, paths)) or '(none)'}"
            )
        covered = covering(facet, self.index, self.conditions)
        view = self._uncovered() if self.conditions and not covered else None
        found = yield from self._ask(CountFacet(facet, covered), view)
        order = [facet.paths.index(path) for path in paths]
        counts: dict[Any, int] = {}
        for name, count in found.items():
            values = facet.decode(name.decode())
            counts[values[0] if len(paths) == 1 else tuple(values[at] for at in order)] = count
        return counts

    acounts = async_version(counts)

    @property
    def _has_plain_members(self) -> bool:
        """True if members are stored as plain primary keys, so that Redis's own commands will do."""
        order = self.index.ordering
        return not (order.width or order.is_wide)

    def _to_entries(self, locations: Iterable[Location]) -> list[Entry]:
        return self.index.to_entries((one.stored, one.score, one.before + 1) for one in locations)

    # Asking

    @property
    def store(self) -> Store:
        return self._reader.store

    @property
    def _reader(self) -> Reader:
        return reader_of(self.index)

    def _ask(self, question: Question[Answer], view: View | None = None) -> Steps[Answer]:
        """Query Redis, or the fallback that ``ZRANK["UNHEALTHY"]`` names if it can't be trusted; ``view``: one other
        than that of this ranking."""
        view = view or self.view
        try:
            return (yield from reader_of(self.index).asking(question, view, self.server))
        except FilterTooLarge as error:
            counted = question.facet.paths if isinstance(question, CountFacet) else ()
            declare = uncovered(self.index, self.conditions, counted)
            hint = f"; declare {declare}" if declare else ""
            raise FilterTooLarge(f"{error}{hint}") from None
        except IndexUnavailable:
            other = fallback()
            if other is None:
                raise
            # As one step, so that coroutines run all of it in one thread: connections belong to threads.
            answer: Answer = yield Blocking(
                partial(other.answer, self.index, self.conditions, question, view)
            )
            return answer

    @property
    def _name(self) -> str:
        """The ranking in words: ``'player' where region='kanto'``."""
        said = " and ".join(map(str, self.conditions))
        return f"{self.index.name!r} where {said}" if said else repr(self.index.name)

    def _not_ranked(self, member: Any) -> NotRanked:
        # Most models show something else than their primary key.
        said = f"{member!r} (primary key {member.pk!r})" if isinstance(member, models.Model) else repr(member)
        return NotRanked(f"{said} is not in the index {self._name}")


def _position(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"a position is a whole number, not {given!r}")
    return given


def _at_most(parameter: str, count: int, at_least: int = 1) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not at_least <= count <= _PAGE_LIMIT:
        raise ValueError(f"{parameter}: expected {at_least} to {_PAGE_LIMIT:,}, not {count!r}")
    return count
