"""The filters and the order of a ranking, and its queries to Redis or to the SQL fallback."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self

from .conf import get_settings
from .engine import reader_of
from .engine.steps import Blocking, Steps
from .exceptions import FilterTooLarge, IndexUnavailable, NotRanked
from .filters import Condition, parse_conditions, plan, uncovered
from .generics import Member
from .requests.counts import CountFacet
from .requests.query import Answer, Question
from .requests.view import METHODS, View
from .sql.reader import answer_by_sql

if TYPE_CHECKING:
    from .engine.reader import Reader
    from .index import RankIndex
    from .store import Store

__all__ = ["Narrowing"]


class Narrowing(Generic[Member]):
    """Members of an index in an order: the base of :class:`~django_zrank.Ranking`."""

    def __init__(
        self,
        index: RankIndex[Member],
        conditions: Sequence[Condition] = (),
        *,
        method: str | None = None,
        reverse: bool | None = None,
        server: str | None = None,
        scan: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self.index = index
        self.conditions = tuple(conditions)
        """The filters that the members pass; empty for all."""

        self.server = server
        """The server to read from, "primary" or "replica"; None for what ``ZRANK["READS"]`` says."""

        self.view = View(
            index.layout,
            plan(index, self.conditions),
            index.ordering.first.descending if reverse is None else reverse,
            method or index.get_ranking_method(),
            scan=scan,
            seconds=seconds,
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

    def filter(self, **conditions: Any) -> Self:
        """The ranking of the members that have these values: ``filter(region="kantou", platform__in=["pc", "ps"])``.

        Names are paths that ``facets`` declares, and ``group``. All conditions must hold; ``__in`` takes several
        values, one of which must match. Filters that one declared facet covers are as fast as the whole index. Other
        combinations are computed in pieces and kept for some seconds; ``recommend()`` tests members one by one first.

        Raises ``ValueError`` for an unknown facet, an invalid value, or more than 50 groups.
        """
        return self._narrow(conditions, negated=False)

    def exclude(self, **conditions: Any) -> Self:
        """The ranking of the members that don't have these values; given several, that don't have all of them."""
        return self._narrow(conditions, negated=True)

    def _narrow(self, given: dict[str, Any], *, negated: bool) -> Self:
        found = parse_conditions(self.index, given, negated=negated)
        return self._copy(conditions=(*self.conditions, *found))

    def by(self, method: str) -> Self:
        """The same members with ranks by another method: ``"ordinal"`` or ``"competition"``; ``"dense"`` only if the
        index declares it, as it takes distinct values that other indexes don't keep.

        Raises ``ValueError``.
        """
        if method not in METHODS:
            raise ValueError(f"by: expected one of {', '.join(METHODS)}, not {method!r}")
        if method == "dense" and not self.index.layout.dense:
            raise ValueError(f"by: the index {self.index.name!r} keeps no distinct values for dense ranks")
        return self._copy(method=method)

    def reversed(self) -> Self:
        """The same members in the other direction: the worst has rank 1, and comes first."""
        return self._copy(reverse=not self.view.reverse)

    def using(self, server: str) -> Self:
        """The same ranking, read from a ``"replica"`` or from the ``"primary"``, whatever ``ZRANK["READS"]`` says.

        A replica answers reads that write nothing: all but ``recommend(remember=…)``, groups, combinations of filters
        that have to be computed, and indexes with ``write_behind``. It has everything that this process has pushed, and
        may be ``ZRANK["REPLICA_LAG"]`` seconds behind other processes; if it is further behind, the primary is asked.

        Raises ``ValueError``.
        """
        if server not in ("primary", "replica"):
            raise ValueError(f"using: expected 'primary' or 'replica', not {server!r}")
        return self._copy(server=server)

    def within(self, *, seconds: float | None = None, scan: int | None = None) -> Self:
        """The same ranking, with bounds on what a combination of filters that no facet covers may take: a call waits
        ``seconds`` for it, or raises :exc:`~django_zrank.exceptions.FilterNotReady`; and computes it from ``scan``
        members at most, or raises :exc:`~django_zrank.exceptions.FilterTooLarge`, as does ``counts()`` of more values.
        They are for requests that you don't trust, and below ``ZRANK["FILTER_TIMEOUT"]`` and ``ZRANK["MAX_SCAN"]``,
        which hold in any case.

        Raises ``ValueError``.
        """
        for name, value in (("seconds", seconds), ("scan", scan)):
            if value is not None and not value >= 0:
                raise ValueError(f"within: expected {name} of 0 or more, not {value!r}")
        return self._copy(
            seconds=self.view.seconds if seconds is None else seconds,
            scan=self.view.scan if scan is None else scan,
        )

    def _copy(self, **changed: Any) -> Self:
        kept: dict[str, Any] = {"conditions": self.conditions, "server": self.server}
        kept |= {"scan": self.view.scan, "seconds": self.view.seconds}
        return type(self)(
            self.index, **{**kept, "method": self.view.method, "reverse": self.view.reverse, **changed}
        )

    # Asking

    @property
    def store(self) -> Store:
        return self._reader.store

    @property
    def _reader(self) -> Reader:
        return reader_of(self.index)

    def _ask(self, question: Question[Answer], method: str | None = None) -> Steps[Answer]:
        """Query Redis, or the fallback that ``ZRANK["UNHEALTHY"]`` names if it can't be trusted; ``method``: a ranking
        method other than that of this ranking."""
        view = self.view if method is None else self.view.by(method)
        try:
            return (yield from reader_of(self.index).asking(question, view, self.server))
        except FilterTooLarge as error:
            counted = question.facet.paths if isinstance(question, CountFacet) else ()
            declare = uncovered(self.conditions, counted)
            hint = f"; declare {declare}" if declare else ""
            raise FilterTooLarge(f"{error}{hint}") from None
        except IndexUnavailable:
            if get_settings().unhealthy != "database":
                raise
            # As one step, so that coroutines run all of it in one thread: connections belong to threads.
            answer: Answer = yield Blocking(
                partial(answer_by_sql, self.index, self.conditions, question, view)
            )
            return answer

    @property
    def _name(self) -> str:
        """The ranking in words: ``'player' where region='kantou'``."""
        said = " and ".join(map(str, self.conditions))
        return f"{self.index.name!r} where {said}" if said else repr(self.index.name)

    def _not_ranked(self, member: Any) -> NotRanked:
        return NotRanked(f"{member!r} is not in the index {self._name}")
