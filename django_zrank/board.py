"""Ranks, scores, pages and numbers of members."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final, overload

from .codec.entry import Entry, Ranked
from .engine.steps import Steps
from .entries import Entries
from .exceptions import NotRanked
from .filters import covering
from .generics import Member
from .narrowing import Narrowing
from .requests.counts import CountFacet, Size
from .requests.pages import Bound, Page, PageAround, PageAt, PageBetween
from .requests.positions import BarePosition, BareScore, Locate, Location
from .verbs import Batches, batch_twin, in_batches, listed, twin, verb

__all__ = ["Board"]

_PAGE_LIMIT: Final = 10_000
"""The most members that one page may have: reading it blocks the server."""

_PAGE: Final = 1000
"""Members that iteration reads in one round trip."""


class Board(Narrowing[Member]):
    """The board that :class:`~django_zrank.Ranking` is."""

    # Members by their positions

    @verb
    def top(self, n: int = 10) -> Steps[Entries[Member]]:
        """The best ``n``."""
        return (yield from self._page(0, _at_most("n", n)))

    atop = twin(top)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> Entries[Member]: ...
    def __getitem__(self, position: int | slice) -> Entry | Entries[Member]:
        """``ranking[0]`` is the best, ``ranking[10:20]`` the second page of ten, as of a queryset."""
        if isinstance(position, slice):
            return self._slice(position.start, position.stop, position.step)
        if position < 0:
            raise ValueError(f"a position can't be negative: {position}; reversed() begins at the end")
        entries = self._slice(position, position + 1)
        if not entries:
            raise IndexError(f"nobody stands at the position {position}")
        return entries[0]

    @verb
    def _slice(self, first: int | None, last: int | None, step: int | None = None) -> Steps[Entries[Member]]:
        """``ranking[first:last]``: the members from the position ``first``, 0 is best, to before ``last``."""
        first = first or 0
        if step not in (None, 1) or first < 0 or (last is not None and last < 0):
            raise ValueError(f"a slice takes no step and no negative positions: {slice(first, last, step)}")
        if last is None:
            raise ValueError(
                f"a slice needs an end: [{first}:{first + 100}]; to read all members, iterate over the ranking"
            )
        return (yield from self._page(first, _at_most("the slice", max(0, last - first), at_least=0)))

    aslice = twin(_slice)

    @in_batches
    def __iter__(self) -> Batches[Entry]:
        """All members, best first: one round trip for 1,000. One that moves meanwhile may come twice, or not at all."""
        positions = itertools.count(0, _PAGE)
        return lambda: self._page(next(positions), _PAGE)

    __aiter__ = batch_twin(__iter__)

    @verb
    def exists(self) -> Steps[bool]:
        """Return true if anybody is ranked."""
        return (yield from self._ask(Size())) > 0

    aexists = twin(exists)

    def __bool__(self) -> bool:
        return self.exists()

    @verb
    def at_rank(self, rank: int) -> Steps[Entry]:
        """The member at ``rank``, 1 is best, counted one by one whatever the ranking method. Raises ``NotRanked``."""
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank: expected a whole number from 1, not {rank!r}")
        entries = yield from self._page(rank - 1, 1)
        if not entries:
            raise NotRanked(f"nobody in the index {self._name} has the rank {rank}")
        return entries[0]

    aat_rank = twin(at_rank)

    def _page(self, first: int, limit: int) -> Steps[Entries[Member]]:
        return self._entries((yield from self._ask(PageAt(first, limit))))

    @verb
    def around(self, member: Any, n: int = 10) -> Steps[Entries[Member]]:
        """``n`` members with ``member`` in their middle; near the ranking's ends away from it, so that the page is full
        wherever the ranking has so many. Raises :exc:`~django_zrank.NotRanked`."""
        page = yield from self._ask(PageAround(self.index.to_text(member), _at_most("n", n)))
        if page is None:
            raise self._not_ranked(member)
        return self._entries(page)

    aaround = twin(around)

    @verb
    def between(
        self, low: Any = None, high: Any = None, n: int = 100, *, offset: int = 0
    ) -> Steps[Entries[Member]]:
        """The best ``n`` of those with a score from ``low`` to ``high``, ends included; None for no bound.

        ``offset``: how many of the best to leave out, for the pages after the first.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset: expected a number of members, not {offset!r}")
        return self._entries((yield from self._between(low, high, _at_most("n", n), offset)))

    abetween = twin(between)

    def _between(self, low: Any, high: Any, limit: int, offset: int = 0) -> Steps[Page]:
        bounds = [self._bound("low", low), self._bound("high", high)]
        best, worst = reversed(bounds) if self.view.reverse else bounds
        return (yield from self._ask(PageBetween(best, worst, limit, offset)))

    # Members by their names

    @verb
    def contains(self, member: object) -> Steps[bool]:
        """Return true if ``member`` is ranked. Raises ``ValueError`` for what can't be a member."""
        text = self.index.to_text(member)
        if self._is_bare:
            return (yield from self._ask(BareScore(text))) is not None
        return (yield from self._ask(Locate([text]))).found[0] is not None

    acontains = twin(contains)

    def __contains__(self, member: object) -> bool:
        return self.contains(member)

    @verb
    def rank(self, member: Any) -> Steps[int]:
        """The rank of ``member``, 1 is best. Raises :exc:`~django_zrank.NotRanked`."""
        if self._is_bare and self.view.method == "ordinal":
            position = yield from self._ask(BarePosition(self.index.to_text(member)))
            if position is None:
                raise self._not_ranked(member)
            return position + 1
        return (yield from self._locate(member))[1].before + 1

    arank = twin(rank)

    @verb
    def score(self, member: Any) -> Steps[Any]:
        """The score of ``member``, in the field's own type. Raises :exc:`~django_zrank.NotRanked`."""
        if self._is_bare:
            score = yield from self._ask(BareScore(self.index.to_text(member)))
            if score is None:
                raise self._not_ranked(member)
            return self.index.ordering.first.kind.decode(score)
        return self._to_entries([(yield from self._locate(member))[1]])[0].score

    ascore = twin(score)

    @verb
    def entry(self, member: Any) -> Steps[Entry]:
        """The rank, the score and all criteria of ``member``. Raises :exc:`~django_zrank.NotRanked`."""
        return self._to_entries([(yield from self._locate(member))[1]])[0]

    aentry = twin(entry)

    @verb
    def percentile(self, member: Any) -> Steps[float]:
        """The percentage of the others that don't rank better than ``member``: 100 is best, 0 the last of all.

        It is SQL's ``PERCENT_RANK()`` the other way round. Raises :exc:`~django_zrank.NotRanked`.
        """
        is_dense = self.view.method == "dense"
        size, location = yield from self._locate(member, "competition" if is_dense else None)
        return 100.0 if size == 1 else 100.0 * (1 - location.before / (size - 1))

    apercentile = twin(percentile)

    def _locate(self, member: Any, method: str | None = None) -> Steps[tuple[int, Location]]:
        size, (location,) = yield from self._ask(Locate([self.index.to_text(member)]), method)
        if location is None:
            raise self._not_ranked(member)
        return size, location

    @verb
    def ranks(self, members: Iterable[Any]) -> Steps[dict[Any, int | None]]:
        """The rank of each of ``members`` by its primary key, None for one that is not ranked."""
        pks = yield from self._pks(members)
        _, found = yield from self._ask(Locate(list(pks)))
        return {
            pk: None if location is None else location.before + 1
            for pk, location in zip(pks.values(), found, strict=True)
        }

    aranks = twin(ranks)

    @verb
    def members(self, members: Iterable[Any]) -> Steps[Entries[Member]]:
        """Those of ``members`` that are ranked, best first, each with its rank among all: the board of my friends."""
        _, locations = yield from self._ask(Locate(list((yield from self._pks(members)))))
        found = sorted(filter(None, locations), key=lambda location: location.position)
        return Entries(self.index, self._to_entries(found))

    amembers = twin(members)

    def _pks(self, members: Iterable[Any]) -> Steps[dict[str, Any]]:
        """Each member as Redis stores it, and its primary key."""
        given = yield from listed("members", members)
        texts = dict.fromkeys(self.index.to_text(one, "members") for one in given)
        _at_most("members", len(texts), at_least=0)
        return {text: self.index.from_bytes(text.encode()) for text in texts}

    # Numbers

    @verb
    def rank_of_score(self, score: Any) -> Steps[int]:
        """The rank that a member with ``score`` would have, before all who have it already."""
        bound = self._bound("score", score)
        return (yield from self._ask(PageBetween(bound, Bound(), 0))).before + 1

    arank_of_score = twin(rank_of_score)

    @verb
    def count(self) -> Steps[int]:
        """The number of ranked members."""
        return (yield from self._ask(Size()))

    acount = twin(count)

    @verb
    def count_between(self, low: Any = None, high: Any = None) -> Steps[int]:
        """The number of members with a score from ``low`` to ``high``, ends included; None for no bound."""
        return (yield from self._between(low, high, 0)).following

    acount_between = twin(count_between)

    @verb
    def counts(self, *paths: str) -> Steps[dict[Any, int]]:
        """The number of members of each value of a facet: ``counts("region")``; of a composite one, of each tuple of
        values: ``counts("region", "platform")``. Values that nobody has are left out."""
        facet = self.index.faceting.of(paths)
        if facet is None:
            raise ValueError(
                f"counts: the index {self.index.name!r} has no facet {', '.join(paths) or '(none)'}"
            )
        found = yield from self._ask(CountFacet(facet, covering(facet, self.index, self.conditions)))
        order = [facet.paths.index(path) for path in paths]
        counts: dict[Any, int] = {}
        for name, count in found.items():
            values = facet.decode(name.decode())
            counts[values[0] if len(paths) == 1 else tuple(values[at] for at in order)] = count
        return counts

    acounts = twin(counts)

    # Parsing

    @property
    def _is_bare(self) -> bool:
        """True if these are bare primary keys in one sorted set, which Redis's own commands can be asked of."""
        order = self.index.ordering
        return not (order.width or order.is_wide) and self.view.ranking is not None

    def _bound(self, parameter: str, value: Any) -> Bound:
        """A score to begin or end with. Raises ``ValueError``, naming the ``parameter``."""
        if value is None and parameter != "score":
            return Bound()
        try:
            score, exact = self.index.ordering.bound_of(value)
        except ValueError as error:
            hint = "" if parameter == "score" else "; None means no bound"
            raise ValueError(f"{parameter}: {error}{hint}") from None
        return Bound(repr(score), exact, value)

    def _entries(self, page: Page) -> Entries[Member]:
        """The members of a page with their ranks."""
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

    def _to_entries(self, locations: Iterable[Location]) -> list[Entry]:
        return self.index.to_entries((one.stored, one.score, one.before + 1) for one in locations)


def _at_most(parameter: str, count: int, at_least: int = 1) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not at_least <= count <= _PAGE_LIMIT:
        raise ValueError(f"{parameter}: expected {at_least} to {_PAGE_LIMIT:,}, not {count!r}")
    return count
