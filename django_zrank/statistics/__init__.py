"""Statistics of a ranking: percentiles, gaps, tiers, histograms, and snapshots of all members."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self

from ..codec.entry import Entry
from ..codec.filters import Condition, uncovered
from ..declaration import Index, Member
from ..entries import Entries
from ..exceptions import NotRanked, ZRankError
from ..queries.counts import Size
from ..queries.pages import Page, PageAbove, PageBetween
from ..queries.positions import Location, Placements
from ..queries.steps import Answer, Question, Several, Steps
from ..queries.view import View
from ..redis.verbs import Batches, async_iterator, async_version, in_batches, verb

__all__ = ["Bin", "FacetStanding", "Gap", "RankingChanged", "Standing", "Statistics"]

_BINS: Final = 100
"""The most ranges of a histogram."""

_PAGE: Final = 1000
"""Members of a snapshot that are read in one round trip."""


class RankingChanged(ZRankError):
    """A ranking has changed while a snapshot of it was read."""


class Standing(NamedTuple):
    """The standing of a member among all members of a ranking."""

    entry: Entry

    size: int
    """The number of members in the ranking."""

    percentile: float
    """The percentile, as returned by :meth:`.Ranking.percentile`."""


class FacetStanding(NamedTuple):
    """The standing of a member in one of its rankings."""

    values: Mapping[str, Any]
    """The member's values of the facet, by their paths; empty for the ranking of all members."""

    entry: Entry
    size: int
    percentile: float


class Gap(NamedTuple):
    """A member, and the one to overtake next."""

    entry: Entry

    above: Entry | None
    """The nearest member with a better rank; None for the members with rank 1."""

    distance: Any
    """The difference between the two scores, 0 or more, in the type that subtracting them gives: a number, a
    ``Decimal`` or a ``timedelta``. 0 if both have the same score, and another criterion or, with ordinal ranks, the
    primary key decides. None if nobody is above."""


class Bin(NamedTuple):
    """A range of scores, both ends included, and the number of members in it."""

    low: Any
    high: Any
    members: int


class Statistics(Generic[Member]):
    """The methods of a ranking about all of its members, or about a member's standing among them."""

    if TYPE_CHECKING:
        index: Index[Member]
        conditions: tuple[Condition, ...]
        view: View

        def using(self, server: str) -> Self: ...
        def reversed(self) -> Self: ...
        def _page(self, first: int, limit: int) -> Steps[Entries[Member]]: ...
        def _between(self, low: Any, high: Any, limit: int, offset: int = 0) -> PageBetween: ...
        def _locate(self, member: Any, method: str | None = None) -> Steps[tuple[int, Location]]: ...
        def _entries(self, page: Page) -> Entries[Member]: ...
        def _not_ranked(self, member: Any) -> NotRanked: ...
        def _to_entries(self, locations: Iterable[Location]) -> list[Entry]: ...
        def _ask(self, question: Question[Answer], view: View | None = None) -> Steps[Answer]: ...
        @property
        def _name(self) -> str: ...

    @verb
    def percentile(self, member: Any) -> Steps[float]:
        """The percentage of the other members that don't rank better than ``member``: 100 for the best, 0 for the last.

        This is SQL's ``PERCENT_RANK()``, reversed, whatever the ranking method. Members that are equal in every
        criterion have the same percentile. Raises :exc:`~django_zrank.NotRanked`.
        """
        size, location = yield from self._locate(member, "competition")
        return _percentile(size, location.before)

    apercentile = async_version(percentile)

    @verb
    def score_at_percentile(self, percentile: float) -> Steps[Any]:
        """The worst score whose members have at least this :meth:`percentile`: 50 for the median, 99 for the score that
        one percent of members reach. None if no member is ranked. Two round trips."""
        if (
            isinstance(percentile, bool)
            or not isinstance(percentile, (int, float))
            or not 0 <= percentile <= 100
        ):
            raise ValueError(f"percentile: expected a number from 0 to 100, not {percentile!r}")
        size = yield from self._ask(Size())
        position = int((100 - Fraction(percentile)) * max(0, size - 1) / 100)
        if position + 1 < size and _percentile(size, position + 1) >= percentile:  # 99.9 isn't a float
            position += 1
        entries = yield from self._page(position, 1)
        return entries[0].score if entries else None

    ascore_at_percentile = async_version(score_at_percentile)

    @verb
    def tier(self, member: Any, shares: Sequence[float]) -> Steps[int]:
        """The number of ``member``'s tier, 0 for the best. ``shares``: where tiers end, in percent of all members. With
        (1, 10, 50), tier 0 is the best percent, tier 1 the next nine percent, and tier 3 the members after the first
        half. Members that are equal in every criterion share a tier. Raises :exc:`~django_zrank.NotRanked`.
        """
        try:
            ends = [Fraction(str(share)) for share in shares]
        except (ArithmeticError, TypeError, ValueError):
            ends = []
        if not ends or ends != sorted({*ends}) or ends[0] <= 0 or ends[-1] > 100:
            raise ValueError(f"shares: expected rising percentages, such as (1, 10, 50), not {shares!r}")
        size, location = yield from self._locate(member, "competition")
        return bisect_right([end * size for end in ends], 100 * location.before)

    atier = async_version(tier)

    @verb
    def standing(self, member: Any) -> Steps[Standing]:
        """The entry of ``member``, with the number of all members and its percentile. One round trip; two with ordinal
        ranks over shards, and with ranks that count no members. Raises :exc:`~django_zrank.NotRanked`."""
        size, equal = yield from self._locate(member, "competition")
        location = equal
        if self.view.method == "ordinal" and len(self.index.holders) == 1:
            location = equal._replace(before=equal.position)
        elif self.view.method != "competition":
            size, location = yield from self._locate(member)
        return Standing(self._to_entries([location])[0], size, _percentile(size, equal.before))

    astanding = async_version(standing)

    @verb
    def standings(self, member: Any, *paths: str) -> Steps[list[FacetStanding]]:
        """The standing of ``member`` in this ranking, then in the rankings of its facets: in its region, its guild, and
        each of its tags, in the order in which ``facets`` are declared.

        ``paths``: only facets that are made of these. Default: all. The facets of a ranking that is filtered are those
        declared with the paths that it is filtered by: for ``filter(season=7)``, ``("season", "region")``.

        One round trip for 50 rankings; over shards two, and more for dense ranks or if many shards are on one server.
        Raises :exc:`~django_zrank.NotRanked`, and ``ValueError`` for an unknown path, or under filters that no facet
        covers.
        """
        if self.view.ranking is None:
            declare = uncovered(self.conditions, ())
            raise ValueError(
                f"standings: no facet covers these filters{f'; declare {declare}' if declare else ''}"
            )
        filtered = self._values(self.view.ranking)
        facets = [
            facet
            for facet in self.index.faceting.all
            if filtered.keys() < {*facet.paths} <= {*filtered, *(paths or facet.paths)}
        ]
        for path in paths:
            if not any(path in facet.paths for facet in facets):
                made_of = ", ".join(map(repr, dict.fromkeys([*filtered, *paths])))
                beside = f" made of {made_of}" if filtered or len(paths) > 1 else ""
                raise ValueError(f"standings: the index {self.index.name!r} has no facet {path!r}{beside}")
        text = self.index.to_text(member)
        placements = yield from self._ask(Placements(text, [facet.name for facet in facets]))
        if not placements:
            raise self._not_ranked(member)
        order = [facet.name for facet in facets]
        first, *others = placements
        others = [one for one in others if filtered.items() <= self._values(one.ranking).items()]
        others.sort(key=lambda one: (order.index(one.ranking.partition(":")[0]), one.ranking))
        placements = [first, *others]
        entries = self._to_entries(one.location for one in placements)
        return [
            FacetStanding(self._values(one.ranking), entry, one.size, _percentile(one.size, one.better))
            for one, entry in zip(placements, entries, strict=True)
        ]

    astandings = async_version(standings)

    def _values(self, ranking: str) -> dict[str, Any]:
        """The values in the name of a ranking, by their paths."""
        for facet in self.index.faceting.all:
            if ranking.startswith(f"{facet.name}:"):
                return dict(zip(facet.paths, facet.decode(ranking), strict=True))
        return {}

    @verb
    def gap(self, member: Any) -> Steps[Gap]:
        """The nearest member that ranks better than ``member``, and the difference between their scores. Of several
        members that share this better rank, the last one by position.

        With ordinal ranks, this is the member one position above, even if both are equal in every criterion. One round
        trip; over shards two, or three with other ranks. Raises :exc:`~django_zrank.NotRanked`.
        """
        page = yield from self._ask(PageAbove(self.index.to_text(member)))
        if page is None:
            raise self._not_ranked(member)
        *above, entry = self._entries(page)
        return Gap(entry, above[0], abs(above[0].score - entry.score)) if above else Gap(entry, None, None)

    agap = async_version(gap)

    @verb
    def histogram(self, bins: int = 20) -> Steps[list[Bin]]:
        """The number of members in each of at most ``bins`` (up to 100) score ranges of equal width, lowest scores
        first; empty if no member is ranked. Three round trips."""
        if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _BINS:
            raise ValueError(f"bins: expected a whole number from 1 to {_BINS}, not {bins!r}")
        keys, kind = [], self.index.ordering.first.kind
        for ranking in (self, self.reversed()):
            keys += [kind.key(entry.score) for entry in (yield from ranking._page(0, 1))]
        if not keys:
            return []
        ranges = [(kind.at(low), kind.at(high)) for low, high in kind.ranges(min(keys), max(keys), bins)]
        pages = yield from self._ask(Several([self._between(low, high, 0) for low, high in ranges]))
        return [Bin(low, high, page.following) for (low, high), page in zip(ranges, pages, strict=True)]

    ahistogram = async_version(histogram)

    @in_batches
    def snapshot(
        self, limit: int | None = None, *, progress: Callable[[int], Any] = lambda members: None
    ) -> Batches[Entry]:
        """Iterate over all members, or the best ``limit``, best first, as of a single moment, for example for rewards
        at the end of a season. 1,000 are read per round trip, and memory use doesn't grow with their number.

        Nothing is copied or locked. After the last member, all pages are read again in the same order, and
        :exc:`~django_zrank.statistics.RankingChanged` is raised if a page differs. So act on members only when the
        iteration has ended, or in a transaction that the exception rolls back. ``progress`` is called with the number
        of members of each page that is read, so each member counts twice. A change that is undone and made again in the
        meantime may stay unnoticed.

        Raises ``ValueError`` for an invalid limit, and under filters that no declared facet covers, because their
        results aren't as of a single moment.
        """
        if self.view.ranking is None:
            declare = uncovered(self.conditions, ())
            raise ValueError(
                f"snapshot: no facet covers these filters{f'; declare {declare}' if declare else ''}"
            )
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ValueError(f"limit: expected a number of members from 1, not {limit!r}")
        digests: list[bytes] = []
        primary = self.using("primary")  # two replicas may be of two moments, each time

        def read(number: int) -> Steps[tuple[Entries[Member], bytes]]:
            first = number * _PAGE
            page = yield from primary._page(
                first, _PAGE if limit is None else min(_PAGE, max(0, limit - first))
            )
            progress(len(page))
            return page, sha256(repr(page).encode()).digest()

        def steps() -> Steps[Sequence[Entry]]:
            page, digest = yield from read(len(digests))
            digests.append(digest)
            if page:
                return page
            # Members that have the same scores as before had them when the last page was read, whose ranks show that
            # there was nobody else, unless a change was undone and made again.
            for number in range(len(digests)):
                if (yield from read(number))[1] != digests[number]:
                    raise RankingChanged(f"The index {self._name} has changed while it was read")
            return ()

        return steps

    asnapshot = async_iterator(snapshot)
    """The asynchronous version of :meth:`snapshot`: ``async for entry in ranking.asnapshot():``."""


def _percentile(size: int, before: int) -> float:
    """The percentile of a member among ``size``; ``before``: those that rank better."""
    return 100.0 if size == 1 else 100 * (size - 1 - before) / (size - 1)
