"""Pages of a ranking: consecutive members, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, overload

from .codec.entry import Entry, Ranked
from .engine.steps import Steps
from .entries import Entries
from .exceptions import NotRanked
from .generics import Member
from .narrowing import Narrowing
from .requests.pages import Bound, Page, PageAround, PageAt, PageBetween
from .verbs import Batches, batch_twin, in_batches, twin, verb

__all__ = ["Pages", "at_most"]

_PAGE_LIMIT: Final = 10_000

_PAGE: Final = 1000
"""Members that iteration reads in one round trip."""


class Pages(Narrowing[Member]):
    """Members of an index by their positions and their scores."""

    @verb
    def top(self, n: int = 10) -> Steps[Entries[Member]]:
        """The best ``n``."""
        return (yield from self._page(0, at_most("n", n)))

    atop = twin(top)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> Entries[Member]: ...
    def __getitem__(self, position: int | slice) -> Entry | Entries[Member]:
        """``ranking[0]`` is the best, ``ranking[10:20]`` the second page of ten, as of a queryset."""
        if isinstance(position, slice):
            return self._slice(position.start, position.stop, position.step)
        if _position(position) < 0:
            raise ValueError(f"a position can't be negative: {position}; reversed() begins at the end")
        entries = self._slice(position, position + 1)
        if not entries:
            raise IndexError(f"no member stands at the position {position}")
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
        return (yield from self._page(first, at_most("the slice", max(0, last - first), at_least=0)))

    aslice = twin(_slice)

    @in_batches
    def __iter__(self) -> Batches[Entry]:
        """Iterate over all members, best first, 1,000 a round trip. One that moves may be repeated or missed."""
        first: int | None = 0

        def steps() -> Steps[Sequence[Entry]]:
            nonlocal first
            if first is None:
                return ()
            page = yield from self._page(first, _PAGE)
            first = first + _PAGE if len(page) == _PAGE else None
            return page

        return steps

    __aiter__ = batch_twin(__iter__)

    @verb
    def at_rank(self, rank: int) -> Steps[Entry]:
        """The member at ``rank``, 1 is best, counted one by one whatever the ranking method. Raises ``NotRanked``."""
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank: expected a whole number from 1, not {rank!r}")
        entries = yield from self._page(rank - 1, 1)
        if not entries:
            raise NotRanked(f"no member of the index {self._name} has the rank {rank}")
        return entries[0]

    aat_rank = twin(at_rank)

    def _page(self, first: int, limit: int) -> Steps[Entries[Member]]:
        return self._entries((yield from self._ask(PageAt(first, limit))))

    @verb
    def around(self, member: Any, n: int = 10) -> Steps[Entries[Member]]:
        """``n`` members with ``member`` in the middle. Near an end of the ranking, there are more on the other side, so
        that the page is full. Raises :exc:`~django_zrank.NotRanked`."""
        page = yield from self._ask(PageAround(self.index.to_text(member), at_most("n", n)))
        if page is None:
            raise self._not_ranked(member)
        return self._entries(page)

    aaround = twin(around)

    @verb
    def between(
        self, low: Any = None, high: Any = None, n: int = 100, *, offset: int = 0
    ) -> Steps[Entries[Member]]:
        """The best ``n`` members with a score from ``low`` to ``high``, ends included; None means no bound.

        ``offset``: how many of the best to skip, for pages after the first.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset: expected a number of members, not {offset!r}")
        return self._entries((yield from self._between(low, high, at_most("n", n), offset)))

    abetween = twin(between)

    def _between(self, low: Any, high: Any, limit: int, offset: int = 0) -> Steps[Page]:
        bounds = [self._bound("low", low), self._bound("high", high)]
        best, worst = reversed(bounds) if self.view.reverse else bounds
        return (yield from self._ask(PageBetween(best, worst, limit, offset)))

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


def _position(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"a position is a whole number, not {given!r}")
    return given


def at_most(parameter: str, count: int, at_least: int = 1) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not at_least <= count <= _PAGE_LIMIT:
        raise ValueError(f"{parameter}: expected {at_least} to {_PAGE_LIMIT:,}, not {count!r}")
    return count
