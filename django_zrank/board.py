"""Ranks, scores and counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .codec.entry import Entry
from .engine.steps import Steps
from .entries import Entries
from .filters import covering
from .generics import Member
from .pages import Pages, at_most
from .requests.counts import CountFacet, Size
from .requests.pages import Bound, PageBetween
from .requests.positions import BarePosition, BareScore, Locate, Location
from .rows import sort_key_of
from .verbs import listed, twin, verb

__all__ = ["Board"]


class Board(Pages[Member]):
    """Lookups of members, and counts: a base of :class:`~django_zrank.Ranking`."""

    # Lookups

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
            position = yield from self._ask(
                BarePosition(self.index.to_text(member), sort_key_of(self.index, member))
            )
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
        """The percentage of the other members that don't rank better than ``member``: 100 for the best, 0 for the last.

        It is SQL's ``PERCENT_RANK()``, reversed, whatever the ranking method: members that are equal in every criterion
        share it. Raises :exc:`~django_zrank.NotRanked`.
        """
        size, location = yield from self._locate(member, "competition")
        return 100.0 if size == 1 else 100.0 * (1 - location.before / (size - 1))

    apercentile = twin(percentile)

    def _locate(self, member: Any, method: str | None = None) -> Steps[tuple[int, Location]]:
        sort_key = sort_key_of(self.index, member)
        question = Locate([self.index.to_text(member)], [sort_key] if sort_key else [], checked=True)
        size, (location,) = yield from self._ask(question, method)
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
        """Those of ``members`` that are ranked, best first, each with its rank among all: a leaderboard of friends."""
        _, locations = yield from self._ask(Locate(list((yield from self._pks(members)))))
        found = sorted(filter(None, locations), key=lambda location: location.position)
        return Entries(self.index, self._to_entries(found))

    amembers = twin(members)

    def _pks(self, members: Iterable[Any]) -> Steps[dict[str, Any]]:
        """The primary key of each member, by its text in Redis."""
        given = yield from listed("members", members)
        texts = dict.fromkeys(self.index.to_text(one, "members") for one in given)
        at_most("members", len(texts), at_least=0)
        return {text: self.index.from_bytes(text.encode()) for text in texts}

    # Counts

    @verb
    def rank_of_score(self, score: Any) -> Steps[int]:
        """The rank that a member with ``score`` would have, ahead of those that have it already."""
        bound = self._bound("score", score)
        return (yield from self._ask(PageBetween(bound, Bound(), 0))).before + 1

    arank_of_score = twin(rank_of_score)

    @verb
    def exists(self) -> Steps[bool]:
        """Return true if anybody is ranked."""
        return (yield from self._ask(Size())) > 0

    aexists = twin(exists)

    def __bool__(self) -> bool:
        return self.exists()

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
        """The number of members with each value of a facet: ``counts("region")``; of a composite facet, with each tuple
        of values: ``counts("region", "platform")``. Values without members are left out."""
        if len(set(paths)) < len(paths):
            raise ValueError(f"counts: a path is given twice: {', '.join(map(str, paths))}")
        facet = self.index.faceting.of(paths)
        if facet is None:
            raise ValueError(
                f"counts: the index {self.index.name!r} has no facet {', '.join(map(str, paths)) or '(none)'}"
            )
        found = yield from self._ask(CountFacet(facet, covering(facet, self.index, self.conditions)))
        order = [facet.paths.index(path) for path in paths]
        counts: dict[Any, int] = {}
        for name, count in found.items():
            values = facet.decode(name.decode())
            counts[values[0] if len(paths) == 1 else tuple(values[at] for at in order)] = count
        return counts

    acounts = twin(counts)

    @property
    def _is_bare(self) -> bool:
        """True if members are stored as plain primary keys in one sorted set, so that Redis's own commands will do."""
        order = self.index.ordering
        return not (order.width or order.is_wide) and self.view.ranking is not None

    def _to_entries(self, locations: Iterable[Location]) -> list[Entry]:
        return self.index.to_entries((one.stored, one.score, one.before + 1) for one in locations)
