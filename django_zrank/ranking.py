"""The readable side of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from .board import Board
from .codec.entry import LateRanks, RankBySortKey
from .engine import reader_of
from .engine.steps import MAY_BLOCK, Blocking, Steps, drive
from .entries import Recommendations
from .exclusions import excluded_by_index
from .generics import Member
from .members import batched, members_of
from .recommendations import excluding, parse_draw, recommended
from .requests.groups import forget_seen
from .requests.positions import Locate
from .requests.query import Several
from .requests.sampling import Draw, Sample
from .rows import sort_key_of
from .sieve import Sieve
from .verbs import Batches, batch_twin, in_batches, listed, twin, verb

if TYPE_CHECKING:
    from .index import Band

__all__ = ["Ranking"]

_MANY: Final = 200
"""Members whose exclusions ``recommend_many()`` reads at once."""

_AT_ONCE: Final = 100
"""The most members that ``recommend_many()`` draws in one round trip."""


class Ranking(Board[Member]):
    """The members of an index, to be queried: ``PlayerRank.ranking``; some of them: ``.filter(region="kantou")``.

    A member is given as an instance of the model or as its primary key. Every method raises
    :exc:`~django_zrank.IndexUnavailable` where the index is not built or Redis can't be reached, after the
    timeout of its alias, and :exc:`~django_zrank.exceptions.FilterTooLarge` where no declared facet covers a
    combination of filters and the smallest of them has more than 5 million members. A method is one round trip to
    Redis; more where thousands of members are read, or no facet covers the filters.
    """

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
        """``n`` random distinct members whose score is near ``member``'s, half ranked before it, half after.

        On each side every set of candidates is equally likely; an odd one comes from before. If one side has too few,
        the other makes up for it; fewer than ``n`` are returned only if the band holds fewer. ``member`` itself
        need not pass the filters of this ranking.

        ``band``: the most that a score may differ from ``member``'s, ends included: one distance, or (below, above).
        Default: the index's. ``ranks``: the same in ranks, in place of ``band``: one number, or (worse, better).
        ``widen``: further bands, tried in turn while there are fewer than ``n``. ``exclude``: members not to offer,
        besides those of ``get_excluded()``. ``seed``: draws the same members every time, for tests.

        ``remember``: the time for which those drawn are not drawn for ``member`` again. When no others are left, those
        shown longest ago come first. The last 1,000 are remembered. See :meth:`forget`.

        ``where``: a condition that only the database can test. Members are drawn in growing batches, one round trip
        and one query each, until ``n`` pass, nobody is left, or 5,000 were tried: then fewer may come back. It
        can't be combined with ``remember``.

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
            sort_key=sort_key_of(index, member),
        )
        if where is not None and not getattr(where, "conditional", False):
            raise ValueError(f"where: expected a Q or another condition, not {where!r}")
        if where is not None and remember is not None:
            raise ValueError("remember: can't be combined with where")
        if not isinstance(exclude, (tuple, list)):
            exclude = yield from listed("exclude", exclude)
        if exclude or index.has_excluded:
            (own,) = yield from excluded_by_index(index, [member])
            if own is None:
                raise self._not_ranked(member)
            draw = excluding(index, draw, {"exclude": exclude, "get_excluded()": own})
        if where is None:
            sample = yield from self._ask(draw)
        else:
            sieve = Sieve(index, self.view, draw, index.get_queryset().filter(where).order_by())
            sample = yield from sieve.steps(self._ask)
        if sample is None:
            raise self._not_ranked(member)
        its_ranks = (yield from self._ranks_of([sample])) if sample.size is None else None
        return recommended(index, self.view, draw, sample, its_ranks)

    arecommend = twin(recommend)

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
        """Yield each of ``members`` with what ``recommend()`` draws for it; None for one that is not ranked.

        One round trip draws up to 100 members, fewer where a draw costs more. If the index has ``get_excluded()``, each
        200 of ``members`` also take the queries of ``get_excluded_many()``, and one for the rows of those given by
        primary key.
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

    arecommend_many = batch_twin(recommend_many)

    def _recommend_each(
        self, members: Sequence[Any], draw: Draw, excluded: Sequence[Any]
    ) -> Steps[list[tuple[Any, Recommendations[Member] | None]]]:
        index = self.index
        hidden = yield from excluded_by_index(index, members)
        draws = [
            excluding(
                index,
                draw._replace(member=index.to_text(member), sort_key=sort_key_of(index, member)),
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
            ranks = yield from self._ranks_of([one for one in some if one and one.size is None])
            found += [one and recommended(index, self.view, draw, one, ranks) for one in some]
        results = iter(found)
        return [
            (member, None if own is None else next(results))
            for member, own in zip(members, hidden, strict=True)
        ]

    def _ranks_of(self, samples: Sequence[Sample]) -> Steps[LateRanks | RankBySortKey | None]:
        """The ranks of the members of several samples, counted over shards in one request for all: when the first of
        them is used, or at once in coroutines, where an attribute can't wait. None if no facet covers the filters."""
        # A member that moved between two round trips may be drawn with two sort keys.
        sort_keys = list(dict.fromkeys((score, who) for sample in samples for _, who, score in sample.drawn))
        if not sort_keys or self.view.ranking is None:
            return None
        if (yield MAY_BLOCK):
            return LateRanks(lambda: drive(self._count(sort_keys), reader_of(self.index).send))
        return (yield from self._count(sort_keys))

    def _count(self, sort_keys: Sequence[tuple[float, bytes]]) -> Steps[RankBySortKey]:
        """The ranks of sort keys, each the score of a member and its stored form."""
        split = self.index.layout.split
        texts = [split(stored)[1].decode() for _, stored in sort_keys]
        _, found = yield from self._ask(Locate(texts, sort_keys))
        return {sort_key: one and one.before + 1 for sort_key, one in zip(sort_keys, found, strict=True)}

    @verb
    def forget(self, member: Any) -> Steps[None]:
        """Forget the members shown to ``member`` (see ``remember``), so that they can be drawn again."""
        text = self.index.to_text(member)
        yield from reader_of(self.index.part_of(text)).running(partial(forget_seen, member=text))

    aforget = twin(forget)
