"""The members that pass several filters, as sets in Redis. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from ..codec.filters import NOBODY, Condition, declare
from ..declaration import Index
from ..exceptions import FilterTooLarge

__all__ = ["MOST_RANKINGS", "Clause", "CombinedFilter", "plan"]

MOST_RANKINGS: Final = 1000
"""The most combinations of values in one filter by a composite facet: each is a key in every call. With 2,500, a call
takes 12 ms of the server."""


class Clause(NamedTuple):
    """A member stands in one of several sets, or in none of them."""

    negated: bool
    kind: str
    """``r``, rankings of facets, or ``g``, sets of members (:class:`~django_zrank.codec.facets.MemberSets`)."""

    names: tuple[str, ...]
    """Of rankings, or the forms in keys of the names of sets."""

    path: str = ""
    """The name of the filter by sets of members, which is the kind of their keys."""

    def __str__(self) -> str:
        return f"{'-' if self.negated else '+'}{self.kind}{len(self.names)}"


@dataclass(frozen=True)
class CombinedFilter:
    """The members that pass all conditions, as sets in Redis."""

    clauses: tuple[Clause, ...] = ()

    @property
    def excluded(self) -> str | None:
        """The name of the ranking of all others, if there is one ranking that holds exactly these."""
        if len(self.clauses) != 1:
            return None
        (only,) = self.clauses
        if not only.negated or only.kind != "r" or len(only.names) > 1:
            return None
        return only.names[0]

    @property
    def look_ups(self) -> int:
        """The most look-ups that it takes to test a member: one for all rankings, and one for each group."""
        groups = sum(len(clause.names) for clause in self.clauses if clause.kind == "g")
        return groups + any(clause.kind == "r" for clause in self.clauses)

    def __str__(self) -> str:
        """The clauses as scripts take them."""
        return "".join(map(str, self.clauses))


def plan(index: Index, conditions: Sequence[Condition]) -> CombinedFilter:
    """The sets behind ``conditions``, as few as the declared facets allow. Raises ``ValueError``, such as
    ``FilterTooLarge``."""
    clauses: list[Clause] = []
    positive = [dict(condition.values) for condition in conditions if not condition.negated]
    while positive:
        # Of several conditions on one path each takes its turn: a member may have several values.
        together: dict[str, tuple[Any, ...]] = {}
        for values in positive:
            (path,) = values
            together.setdefault(path, values[path])
        covered, clause = _widest(index, together)
        clauses.append(clause)
        for path in covered:
            positive.remove({path: together[path]})
    for condition in conditions:
        if condition.negated:
            covered, clause = _widest(index, dict(condition.values), negated=True)
            if len(covered) < len(condition.values):
                raise ValueError(
                    f"exclude({', '.join(condition.values)}): to leave out members that have all of these, declare "
                    f"{declare(index, condition.values)}; to leave out members that have any, call exclude() once for "
                    "each"
                )
            clauses.append(clause)
    # The order of conditions makes no difference, so neither do the names of what is kept for them.
    return CombinedFilter(tuple(sorted(set(clauses))))


def _widest(
    index: Index, values: Mapping[str, tuple[Any, ...]], negated: bool = False
) -> tuple[tuple[str, ...], Clause]:
    """The facet that covers most of the paths, and its clause."""
    for path, sets in index.member_sets.items():
        if path in values and (not negated or len(values) == 1):
            names = set(map(sets.parse, values[path]))
            return (path,), Clause(negated, "g", tuple(sorted(names)) or (NOBODY,), path)
    facets = [facet for facet in index.faceting.all if set(facet.paths) <= values.keys()]
    if not facets:
        path = next((path for path in values if path not in index.member_sets), next(iter(values)))
        raise ValueError(f"{path}: not a facet by itself; declare {declare(index, [path])}")
    facet = max(facets, key=lambda one: len(one.paths))
    count = prod(len(values[path]) for path in facet.paths)
    if len(facet.paths) > 1 and count > MOST_RANKINGS:
        raise FilterTooLarge(
            f"{facet.name}: these values make {count:,} combinations; a filter takes up to {MOST_RANKINGS:,}"
        )
    names = {facet.ranking(chosen) for chosen in product(*(values[path] for path in facet.paths))}
    return facet.paths, Clause(negated, "r", tuple(sorted(names)) or (NOBODY,))
