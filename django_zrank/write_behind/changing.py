"""Verbs that change scores in Redis."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final, TypeAlias, overload

from django.db import Error

from ..codec.units import EXACT, EXACT_LOW
from ..conf import settings_of
from ..declaration import Index
from ..exceptions import IndexUnavailable, NotRanked
from ..extension import installed
from ..queries.request import Blocking
from ..queries.steps import Steps
from ..redis import reader_of
from ..redis.keys import Keys
from ..redis.verbs import async_version, verb
from .changes import CHANGES, Changed, ChangeScores
from .conf import ScoreSettings
from .declaration import WriteBehindIndex

__all__ = ["Changing"]

logger = logging.getLogger("django_zrank")

Score: TypeAlias = int | Decimal
"""A write-behind score, as the column has it: an integer, or a decimal of fixed places."""

_VALUES: Final = 3
"""The number of values that a member is assumed to have of a facet that may have several."""


class Changing:
    """The verbs of ``PlayerRank.scores`` that change scores."""

    index: Any

    @property
    def limit(self) -> int:
        """The maximum number of members that one call of ``increment()`` changes: 150, and fewer if facets put each
        member into several rankings, or if its ranks take several writes. The server does nothing else during a call,
        and while a rebuild runs, a call writes to both builds."""
        return _limit(self.index)

    @overload
    def increment(self, member: Mapping[Any, Score], *, key: str = "") -> dict[Any, Score]: ...
    @overload
    def increment(self, member: Any, by: Score = 1, *, key: str = "") -> Score: ...
    @verb  # type: ignore[misc]  # to mypy, Concatenate's first parameter has no name
    def increment(self, member: Any, by: Any = 1, *, key: str = "") -> Steps[Any]:
        """Add ``by`` to the score of a member, and return the new score. Given ``{member: by, …}``, change the scores
        of at most :attr:`limit` members, all or none, and return the new scores by member. With ``shards``, the members
        must belong to one shard.

        ``key`` is an idempotency key, remembered for ``KEEP_KEYS`` seconds, a day by default: if the change with this
        key has already been made, nothing is added. Raises :exc:`~django_zrank.NotRanked`, and ``ValueError`` if a
        score would leave the column's range, or if another change had this key.
        """
        self._require("increment", "'increment'", "sum")
        if isinstance(member, Mapping):
            if by != 1:
                raise ValueError("by: several members are given with their own numbers, {member: by, …}")
            changed = yield from self._change(member.items(), "by", key)
            return dict(zip(member, changed.results, strict=True))
        return (yield from self._change([(member, by)], "by", key)).results[0]

    aincrement = async_version(increment)

    @verb
    def submit(self, member: Any, value: Score, *, key: str = "") -> Steps[Score]:
        """Submit a score for a member, and return the member's score after that. ``write_behind = "best"`` keeps the
        better of ``value`` and the current score, ``"latest"`` replaces the current score.

        For ``key`` and errors, see :meth:`increment`.
        """
        self._require("submit", "'best' or 'latest'", "max", "min", "last")
        score: Score = (yield from self._change([(member, value)], "value", key)).results[0]
        return score

    asubmit = async_version(submit)

    @verb
    def change(self, member: Any, change: Any, *, key: str = "") -> Steps[tuple[Any, bool]]:
        """Make one change by the rule that the index declares, as ``increment()`` or ``submit()`` does. Return the new
        score, and True if the change had been made before, under this ``key``."""
        self._require("change", "a rule", "sum", "max", "min", "last")
        parameter = "by" if self.index.rule == "sum" else "value"
        changed = yield from self._change([(member, change)], parameter, key)
        return changed.results[0], changed.outcome == "replayed"

    achange = async_version(change)

    def _wake(self, missing: Sequence[str]) -> Blocking[Any]:
        # A declaration loads no Redis.
        from .waking import wake

        return Blocking(partial(wake, self.index, list(map(self.index.from_text, missing))))

    def _require(self, method: str, needed: str, *rules: str) -> None:
        if self.index.rule not in rules:
            declared = repr(self.index.get_write_behind() or None)
            raise TypeError(
                f"{method}() needs write_behind = {needed}; the index {self.index.name!r} declares {declared}"
            )

    def _change(self, given: Iterable[tuple[Any, Any]], parameter: str, key: str) -> Steps[Changed]:
        index: WriteBehindIndex[Any] = self.index
        changes: dict[str, int] = {}
        known: dict[Any, int] = {}  # by the change: many have the same
        try:
            key.encode()
        except (AttributeError, UnicodeEncodeError):  # lone surrogates
            raise ValueError(f"key: expected text, not {key!r}") from None
        for member, change in given:
            text = index.to_text(member, "member")
            if text in changes:
                raise ValueError(f"member: {member!r} is named twice")
            units = known.get(change) if type(change) is int else None
            if units is None:
                units = known[change] = self._units(change, parameter)
            changes[text] = units
        if not changes:
            return Changed("done", [])
        if len(changes) > (limit := _limit(index)):
            raise ValueError(
                f"member: expected at most {limit} members at once in the index {index.name!r}, not {len(changes)}: "
                "all are changed in one call, which holds the server"
            )
        holder, *others = index.place(changes)
        if others:
            raise ValueError(
                f"member: the index {index.name!r} has shards, and members of several can't be changed at once"
            )
        pairs, faceted = list(changes.items()), bool(index.faceting)
        keep = math.ceil(settings_of(ScoreSettings).keep_keys)
        ask = ChangeScores(index.layout, index.noted_rule, _limits(index), pairs, key, keep, faceted)
        reader = reader_of(holder)

        def request(keys: Keys) -> Steps[Changed]:
            # Another release's build may have been put in place since the server was checked.
            if not index.declares(keys.build):
                raise reader.declared_otherwise()
            return ask.steps(keys)

        yield reader.trusted_server
        found: Changed = yield from reader.running(request)
        if found.outcome == "missing":
            yield self._wake(found.results)
            found = yield from reader.running(request)
        if found.outcome == "missing":
            raise NotRanked(f"{', '.join(found.results[:5])} is not ranked in {index.name!r}")
        if found.outcome == "reused":
            raise ValueError(f"key: {key!r} was the key of another change")
        if found.outcome == "beyond":
            raise ValueError(
                f"{parameter}: the score of {', '.join(found.results[:5])} would leave the column's range"
            )
        for name, one in installed().items():
            try:
                yield from one.changed(index, list(changes))
            except (NotRanked, IndexUnavailable, Error) as error:
                # Raised, it would say that the change failed, and the caller would make it again.
                logger.warning(
                    "Index %r: a change was made, but not recorded for %s. %s", index.name, name, error
                )
        decode = index.ordering.first.kind.decode
        return found._replace(results=list(map(decode, found.results)))

    def _units(self, change: Any, parameter: str) -> int:
        kind = self.index.ordering.first.kind
        try:
            units: int = kind.units(kind.check(change))
        except ValueError as error:
            raise ValueError(f"{parameter}: {error}") from None
        if not EXACT_LOW <= units <= EXACT:
            raise ValueError(f"{parameter}: {change} is beyond ±2**53, up to which scores are exact")
        return units


@cache
def _limit(index: Index) -> int:
    """The most members that one call changes."""
    facets = sum(_VALUES if facet.many else 1 for facet in index.faceting.all)
    # Each ranking of a facet is written by a command of its own, for few members: twice what one of many takes.
    return max(1, CHANGES // ((1 + 2 * facets) * (2 if index.layout.beside else 1)))


@cache
def _limits(index: WriteBehindIndex[Any]) -> tuple[int, int]:
    """The lowest and the highest score, in units, that a change may lead to."""
    return index.column.limits(index.get_using())  # type: ignore[union-attr]
