"""Keys of states that differ in names only: each number is replaced by its place among those of its type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from types import UnionType
from typing import Any, Final, NewType, get_args, get_origin, get_type_hints

Name = NewType("Name", int)
"""A number of which only identity matters."""

Version = NewType("Version", int)
Term = NewType("Term", int)
"""Numbers of which the order matters, too."""

GAP: Final = 5
"""Numbers that lie farther apart are taken for this far apart."""

Split = tuple[Any, Iterable[Any], Iterable[int], Iterable[int]]
"""A value without the numbers in it, and these: names, versions and terms, as they come."""


def key_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that returns the key of a state of this type."""
    split = _splitting(kind)

    def key(state: Any) -> Any:
        shape, names, versions, terms = split(state)
        # What is below 0, and a score, says itself what it is.
        places = {
            name: place if isinstance(name, int) and name > 0 else name
            for place, name in enumerate(dict.fromkeys(names), 1)
        }
        return shape, *map(places.__getitem__, names), *_ranked(versions), *_ranked(terms)

    return key


def _ranked(numbers: Iterable[int]) -> list[int]:
    """Return smaller numbers in the same order, at most ``GAP`` apart."""
    found: dict[int, int] = {}
    before = rank = 0
    for number in sorted(set(numbers)):
        rank += min(number - before, GAP)
        found[number], before = rank, number
    return [found[number] for number in numbers]


def _joined(shape: list[Any], splits: Iterable[tuple[int, Any]]) -> Split:
    """Split some parts of a value. 0, () and None stay."""
    names: list[Any] = []
    versions: list[int] = []
    terms: list[int] = []
    for at, split in splits:
        if shape[at]:
            shape[at], some, more, others = split(shape[at])
            names += some
            versions += more
            terms += others
    return tuple(shape), names, versions, terms


def _splitting(kind: Any) -> Any:
    """Return a function that splits a value of this type; None if it holds no numbers."""
    if isinstance(kind, NewType):
        place = (Name, Version, Term).index(kind)
        before, after = [()] * place, [()] * (2 - place)
        return lambda value: (kind, *before, (value,), *after)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _splitting(parts[0])
    if origin is tuple and parts[-1] is ...:
        one = _splitting(parts[0])
        return one and (lambda value: _joined(list(value), ((at, one) for at in range(len(value)))))
    is_named = hasattr(kind, "_fields")
    if is_named:
        parts = tuple(get_type_hints(kind).values())
    elif origin is not tuple:
        return None
    splits = [(at, one) for at, part in enumerate(parts) if (one := _splitting(part))]
    if not splits:
        return None

    def split(value: Any) -> Split:
        return _joined(list(value), splits)

    # A step changes one part of a world: the others have been split before.
    return lru_cache(100_000)(split) if is_named else split
