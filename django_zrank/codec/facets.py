"""Facets: each value of a declared column, or of several together, has a ranking of its own. No I/O.

The ranking of a value is called by its *name*: ``region:kanto``, ``region,platform:kanto,pc``. Values are
percent-encoded, so that commas and colons only separate them; null is a bare ``*``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from django.core.exceptions import FieldError, ValidationError
from django.db import models

from .fields import Annotated, follow, unannotated
from .kinds import Kind, kind_of

__all__ = ["Facet", "Facets", "MemberSets"]

_NULL: Final = "*"


@dataclass(frozen=True)
class Facet:
    paths: tuple[str, ...]
    """Lookup paths from the model: one, or several of a composite facet."""

    kinds: tuple[Kind, ...]
    """The kind of the values at each path; of a relation, of the primary keys of the related model."""

    many: bool
    """True if a member may have several values."""

    @classmethod
    def parse(
        cls,
        model: type[models.Model],
        declared: str | Sequence[str],
        annotated: Annotated = unannotated,
    ) -> Facet:
        """Parse a facet of ``model``. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        paths = tuple(declared) if isinstance(declared, (tuple, list)) else (declared,)
        if not paths or len(set(paths)) < len(paths) or not all(isinstance(path, str) for path in paths):
            raise FieldError(f"expected a field such as 'region', or a tuple of several, not {declared!r}")
        kinds, many = [], False
        for path in paths:
            steps = follow(model, path, annotated)
            many = many or any(step.one_to_many or step.many_to_many for step in steps if step.is_relation)
            kinds.append(_kind(path, steps[-1]))
        return cls(paths, tuple(kinds), many)

    @property
    def name(self) -> str:
        """``region``, or ``region,platform``."""
        return ",".join(self.paths)

    def kind(self, path: str) -> Kind:
        return self.kinds[self.paths.index(path)]

    def ranking(self, values: Iterable[Any]) -> str:
        """The name of the ranking of the members with these values, one for each path."""
        return f"{self.name}:{','.join(map(_encode, self.kinds, values))}"

    def rankings(self, row: Mapping[str, Collection[Any]]) -> Iterator[str]:
        """The names of the rankings that a member is in; ``row``: its values at each path."""
        return map(self.ranking, product(*(row[path] for path in self.paths)))

    def decode(self, ranking: str) -> tuple[Any, ...]:
        """The values in the name of a ranking, in the fields' own types."""
        texts = ranking.removeprefix(f"{self.name}:").split(",")
        return tuple(map(_decode, self.kinds, texts))

    def parse_value(self, path: str, value: Any) -> Any:
        """Parse a value to filter by, into the type of the field behind ``path``. Raises ``ValueError``."""
        kind, field = self.kind(path), self.kind(path).field
        if isinstance(value, models.Model):
            known = isinstance(value, getattr(field, "model", ()))
            key = getattr(value, field.attname, None) if known else None
            if key is None:  # not null, which stands for members without a value
                raise ValueError(f"{path}: {value!r} is not saved, or of another model than {field}")
            value = key
        if value is None:
            return None
        try:
            # A field of text would take its repr().
            if isinstance(value, (list, tuple, set, frozenset, dict)):
                raise ValueError
            return kind.parse_facet(value)
        except (ValidationError, OverflowError, TypeError, ValueError):
            raise ValueError(f"{path}: {value!r} is not a value of {field}") from None


@dataclass(frozen=True)
class Facets:
    all: tuple[Facet, ...]

    @classmethod
    def parse(
        cls,
        model: type[models.Model],
        declared: Sequence[str | Sequence[str]],
        annotated: Annotated = unannotated,
    ) -> Facets:
        """Parse the ``facets`` of an index. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        if isinstance(declared, str) or not isinstance(declared, Sequence):
            raise FieldError(f'expected a sequence such as ("region",), not {declared!r}')
        facets = tuple(Facet.parse(model, one, annotated) for one in declared)
        sets = [frozenset(facet.paths) for facet in facets]
        if len(set(sets)) < len(sets):
            raise FieldError("one facet is declared twice")
        return cls(facets)

    def __bool__(self) -> bool:
        return bool(self.all)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of all facets, each once."""
        return tuple(dict.fromkeys(path for facet in self.all for path in facet.paths))

    @property
    def many(self) -> bool:
        """True if a member may have several values of a facet."""
        return any(facet.many for facet in self.all)

    def rankings(self, row: Mapping[str, Collection[Any]]) -> list[str]:
        """The names of all rankings that a member is in, sorted; ``row``: its values at each path."""
        return sorted(name for facet in self.all for name in facet.rankings(row))

    def count(self, row: Mapping[str, Collection[Any]]) -> int:
        """The number of rankings that a member is in; ``row``: its values at each path."""
        return sum(prod(len(row[path]) for path in facet.paths) for facet in self.all)

    def reading(self, path: str) -> Facet:
        """A facet that includes ``path``, by itself or with others. Raises ``LookupError``."""
        for facet in self.all:
            if path in facet.paths:
                return facet
        raise LookupError(f"no facet reads {path}; there are: {', '.join(self.paths)}")

    def of(self, paths: Iterable[str]) -> Facet | None:
        """The facet of exactly these paths, in any order."""
        wanted = frozenset(paths)
        return next((facet for facet in self.all if frozenset(facet.paths) == wanted), None)


def _encode(kind: Kind, value: Any) -> str:
    return _NULL if value is None else quote(kind.facet_text(value), safe="")


def _decode(kind: Kind, text: str) -> Any:
    if text == _NULL:
        return None
    with suppress(ValidationError, ValueError):
        return kind.field.to_python(unquote(text))
    # SQLite's columns hold values of any type, and a newer release may have added values to an enum.
    return unquote(text)


def _kind(path: str, field: Any) -> Kind:
    """The kind of the values that are compared. Raises ``FieldError`` if they have no plain text form."""
    if field.is_relation and field.related_model is None:
        raise FieldError(f"{path}: a generic relation can't be a facet")
    kind = kind_of(field)
    if not kind.is_facet:
        raise FieldError(f"{path}: a {type(kind.field).__name__} can't be a facet")
    return kind


class MemberSets(NamedTuple):
    """A filter by sets of members that a part keeps, under keys of the filter's name (:meth:`.Keys.beside`): sorted
    sets, primary key -> until when it belongs, in microseconds."""

    most: int
    """The most sets in one filter: each of them is a look-up for every member that is tested."""

    parse: Callable[[Any], str]
    """A function from the name of a set to its form in keys. Raises ``ValueError``."""
