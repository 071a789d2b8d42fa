"""Keys of states that differ in names only: each number is replaced by its place among those of its type."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, NewType, get_args, get_origin, get_type_hints

Name = NewType("Name", int)
"""A number of which only identity matters."""

Version = NewType("Version", int)
Term = NewType("Term", int)
"""Numbers of which the order matters, too."""

GAP: Final = 5
"""Numbers that lie farther apart are taken for this far apart."""


def key_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that returns the key of a state of this type."""
    translate = _translation(kind)

    def key(state: Any) -> Any:
        seen: dict[Any, list[Any]] = {Name: [], Version: [], Term: []}
        translate(state, {kind: numbers.append for kind, numbers in seen.items()})
        # What is below 0, and a score, says itself what it is.
        names = {
            name: place if isinstance(name, int) and name > 0 else name
            for place, name in enumerate(dict.fromkeys(seen[Name]), 1)
        }
        places = {Name: names, Version: _ranked(seen[Version]), Term: _ranked(seen[Term])}
        return translate(state, {kind: one.__getitem__ for kind, one in places.items()})

    return key


def _ranked(numbers: list[int]) -> dict[int, int]:
    """Return smaller numbers in the same order, at most ``GAP`` apart. 0 stays 0."""
    found = {0: 0}
    before = rank = 0
    for number in sorted(set(numbers)):
        rank += min(number - before, GAP)
        found[number], before = rank, number
    return found


def _translation(kind: Any) -> Any:
    """Return a function that translates the names in a value of this type; None if it holds none."""
    if isinstance(kind, NewType):
        return lambda value, places: places[kind](value)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _translation(parts[0])
    if origin is tuple and parts[-1] is ...:
        one = _translation(parts[0])
        return one and (lambda value, places: tuple([one(item, places) for item in value]))
    if hasattr(kind, "_fields"):
        parts = tuple(get_type_hints(kind).values())
    elif origin is not tuple:
        return None
    translated = [(at, one) for at, part in enumerate(parts) if (one := _translation(part))]

    def of_each(value: Any, places: Any) -> Any:
        result = list(value)
        for at, one in translated:
            if result[at]:  # 0, () and None stay
                result[at] = one(result[at], places)
        return tuple(result)

    return of_each if translated else None
