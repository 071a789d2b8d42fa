"""One filter language: conditions over facets and groups, and the sets in Redis that they are about. No I/O.

Several conditions are joined by AND, several values of one by OR; ``exclude()`` negates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from ..declaration import Declaration
from ..exceptions import FilterTooLarge

if TYPE_CHECKING:
    from .facets import Facet

__all__ = [
    "GROUP",
    "MOST_GROUPS",
    "MOST_RANKINGS",
    "Clause",
    "Condition",
    "Scope",
    "covering",
    "parse_conditions",
    "plan",
    "quote_group",
]

GROUP: Final = "group"
"""The name by which groups are filtered: ``filter(group="live:42")``."""

MOST_GROUPS: Final = 50
"""The most groups in one filter: each of them is a look-up for every member that is tested."""

MOST_RANKINGS: Final = 1000
"""The most combinations of values in one filter by a composite facet: each is a key in every call. With 2,500, a call
takes 12 ms of the server."""

_NOBODY: Final = "!"
"""The name of a ranking that never exists: for a filter by one of no values."""


class Condition(NamedTuple):
    """A member's value at a path is, or is not, one of several. The arguments of ``exclude()`` are one condition."""

    values: Mapping[str, tuple[Any, ...]]
    """The values at each path; ``group`` for groups. Negated ones may have several paths."""

    negated: bool

    def __str__(self) -> str:
        said = " and ".join(
            f"{path}={values[0]!r}" if len(values) == 1 else f"{path} in {values!r}"
            for path, values in self.values.items()
        )
        return f"not ({said})" if self.negated else said


class Clause(NamedTuple):
    """A member stands in one of several sets, or in none of them."""

    negated: bool
    kind: str
    """``r``, rankings of facets, or ``g``, groups."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'-' if self.negated else '+'}{self.kind}{len(self.names)}"


@dataclass(frozen=True)
class Scope:
    """The members that pass all conditions, as sets in Redis."""

    clauses: tuple[Clause, ...] = ()

    @property
    def ranking(self) -> str | None:
        """The name of the one ranking that holds exactly these members, '' for all; None if there is none."""
        if not self.clauses:
            return ""
        only, *others = self.clauses
        if others or only.negated or only.kind != "r" or len(only.names) > 1:
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


def parse_conditions(index: Declaration, given: Mapping[str, Any], *, negated: bool) -> list[Condition]:
    """Parse the arguments of ``filter()`` or ``exclude()``. Raises ``ValueError``."""
    values: dict[str, tuple[Any, ...]] = {}
    for name, value in given.items():
        path = name.removesuffix("__in")
        several = path != name and path in _known(index)
        path = path if several else name
        if several and (isinstance(value, (str, bytes)) or not isinstance(value, Iterable)):
            raise ValueError(f"{name}: expected several values, not {value!r}")
        found = tuple(_parse(index, path, one) for one in (value if several else (value,)))
        if path in values:
            raise ValueError(f"{path}: give either {path} or {path}__in, not both")
        values[path] = tuple(dict.fromkeys(found))
        if path == GROUP and len(values[path]) > MOST_GROUPS:
            raise ValueError(f"{name}: expected at most {MOST_GROUPS} groups, not {len(values[path])}")
    if negated:
        return [Condition(values, True)] if values else []
    return [Condition({path: some}, False) for path, some in values.items()]


def _known(index: Declaration) -> tuple[str, ...]:
    return (*index.faceting.paths, GROUP)


def _parse(index: Declaration, path: str, value: Any) -> Any:
    if path == GROUP:
        quote_group(value)
        return value
    if path in index.faceting.paths:
        return index.faceting.reading(path).parse_value(path, value)
    facets = ", ".join(_known(index))
    raise ValueError(f"{path}: the index {index.name!r} has no such facet; there are: {facets}")


def quote_group(name: Any) -> str:
    """Return the name of a group, quoted as in keys. Raises ``ValueError``."""
    try:
        quoted = quote(name, safe="")
    except (TypeError, UnicodeEncodeError):  # lone surrogates
        quoted = ""
    if not quoted or not isinstance(name, str):
        raise ValueError(f"group: expected the name of a group, not {name!r}")
    return quoted


def plan(index: Declaration, conditions: Sequence[Condition]) -> Scope:
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
                    f"{_declare(condition.values)}; to leave out members that have any, call exclude() once for each"
                )
            clauses.append(clause)
    # The order of conditions makes no difference, so neither do the names of what is kept for them.
    return Scope(tuple(sorted(set(clauses))))


def _widest(
    index: Declaration, values: Mapping[str, tuple[Any, ...]], negated: bool = False
) -> tuple[tuple[str, ...], Clause]:
    """The facet that covers most of the paths, and its clause."""
    if GROUP in values and (not negated or len(values) == 1):
        names = set(map(quote_group, values[GROUP]))
        return (GROUP,), Clause(negated, "g", tuple(sorted(names)) or (_NOBODY,))
    facets = [facet for facet in index.faceting.all if set(facet.paths) <= values.keys()]
    if not facets:
        path = next(path for path in values if path != GROUP) if values.keys() - {GROUP} else GROUP
        raise ValueError(f"{path}: not a facet by itself; declare {_declare([path])}")
    facet = max(facets, key=lambda one: len(one.paths))
    count = prod(len(values[path]) for path in facet.paths)
    if len(facet.paths) > 1 and count > MOST_RANKINGS:
        raise FilterTooLarge(
            f"{facet.name}: these values make {count:,} combinations; a filter takes up to {MOST_RANKINGS:,}"
        )
    names = {facet.ranking(chosen) for chosen in product(*(values[path] for path in facet.paths))}
    return facet.paths, Clause(negated, "r", tuple(sorted(names)) or (_NOBODY,))


def covering(facet: Facet, index: Declaration, conditions: Iterable[Condition]) -> str:
    """Return the prefix of the names of the rankings that hold, for each value of ``facet``, the members that meet the
    conditions: those of a composite facet that begins with the paths filtered by. Empty where there is none."""
    given = _given(conditions)
    for one in index.faceting.all:
        first, rest = one.paths[: len(given)], one.paths[len(given) :]
        if given and given.keys() == set(first) and rest == facet.paths:
            return one.ranking(given[path] for path in first) + ","
    return ""


def _given(conditions: Iterable[Condition]) -> dict[str, Any]:
    """The value at each path, if every condition asks for one value of one path; otherwise nothing."""
    given: dict[str, Any] = {}
    for condition in conditions:
        (path, values), *others = condition.values.items()
        plain = not (condition.negated or others or len(values) != 1 or path == GROUP)
        if not plain or given.setdefault(path, values[0]) != values[0]:
            return {}
    return given


def _declare(paths: Iterable[str]) -> str:
    names = tuple(path for path in paths if path != GROUP)
    return f"facets = ({names!r},)" if len(names) != 1 else f"facets = ({names[0]!r},)"


def uncovered(conditions: Sequence[Condition], counted: Sequence[str] = ()) -> str | None:
    """Return the declaration of the composite facet that would cover ``conditions`` and, in counts by a facet, the
    paths that are ``counted``; None if none would."""
    if counted:
        given = _given(conditions)
        return _declare([*given, *counted]) if given and not given.keys() & set(counted) else None
    paths = dict.fromkeys(
        path for condition in conditions if not condition.negated for path in condition.values
    )
    paths.pop(GROUP, None)
    return _declare(paths) if len(paths) > 1 else None
