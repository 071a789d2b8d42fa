"""The fingerprint of a declaration: a digest of what decides which rows are ranked, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import EmptyResultSet
from django.db import connections, models
from django.utils import timezone

from ..conf import get_settings
from .fields import follow, value_field

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["compiled", "fingerprint"]

_LIST: Final = re.compile(r"IN \((%s(?:, %s)*)\)")
"""The placeholders of an IN lookup."""

_PLACEHOLDER: Final = re.compile(r"%(.)")
"""A placeholder, or an escaped percent sign."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""The address of an object, in its default ``repr()``."""


def fingerprint(index: RankIndex) -> str:
    """Return eight digits that identify what an index declares: its order, facets, layout and ``idle``; the query of
    ``get_queryset()`` with its parameters; the types of the fields that are read, the formulas of generated fields, the
    time zone of times without one, and ``ZRANK["MAX_VALUES"]``.

    Releases that differ in any of these rank rows differently, so neither reads or writes what the other has built.
    Queries are compiled for the database that is mirrored, which may have to be connected: raises ``django.db.Error``,
    or ``SynchronousOnlyOperation`` in a coroutine.
    """
    criteria = index.ordering.criteria
    values = [(one.path, type(one.kind).__name__, vars(one.kind)) for one in criteria]
    # A single criterion is stored in one way, whatever its direction.
    flags = [(one.descending, one.nullable, one.nulls_first) for one in criteria if len(criteria) > 1]
    facets = [facet.name for facet in index.faceting.all]
    said = [index.model._meta.label, values, flags, facets, index.layout, index.awake and index.awake[:2]]
    fields = _fields(index)
    types = [_type(value_field(field)) for field in (index.model._meta.pk, *fields)]
    sql, parameters = compiled(index)
    said += [types, sql, parameters, *_formulas(index, sql)]
    if any(isinstance(value_field(field), models.DateTimeField) for field in fields):
        said += [settings.USE_TZ, connections[index.get_using()].timezone_name]
    if index.faceting.many:
        said.append(get_settings().max_values)
    return sha256(repr(said).encode()).hexdigest()[:8]


def compiled(index: RankIndex) -> tuple[str, Sequence[str]]:
    """Return the SQL of ``get_queryset()`` with the columns that are read, and the texts of its parameters: the same
    whatever time zone a request has activated."""
    using = index.get_using()
    paths = dict.fromkeys((*index.ordering.paths, *index.faceting.paths))
    rows = index.get_queryset().using(using).order_by().values_list("pk", *paths)
    try:
        with timezone.override(None):
            sql, parameters = rows.query.get_compiler(using).as_sql()
    except EmptyResultSet:
        return "", ()
    texts = [_ADDRESS.sub("", repr(_held(one))) for one in parameters]
    # The order of a set differs between processes.
    for found in _LIST.finditer(sql):
        at = sum(one[1] == "s" for one in _PLACEHOLDER.finditer(sql, 0, found.start()))
        count = found[1].count("%s")
        texts[at : at + count] = sorted(texts[at : at + count])
    return sql, texts


def _held(parameter: Any) -> Any:
    """Return the value that an adapter of a driver holds: its ``repr()`` shortens the value, or leaves it out."""
    if isinstance(parameter, (str, int)):  # an enum's attributes say where it stands among others
        return parameter
    return getattr(parameter, "obj", None) or getattr(parameter, "__dict__", None) or parameter


def _fields(index: RankIndex) -> list[models.Field[Any, Any]]:
    """Return the fields at the ends of the paths that are read."""
    awake = [index.awake.path] if index.awake else []
    return [
        [*follow(index.model, path)][-1] for path in (*index.ordering.paths, *index.faceting.paths, *awake)
    ]


def _type(field: Any) -> tuple[Any, ...]:
    attributes = "max_digits", "decimal_places", "db_collation"
    return field.get_internal_type(), *(getattr(field, attribute, None) for attribute in attributes)


def _formulas(index: RankIndex, sql: str) -> Iterator[tuple[str, str]]:
    """Yield the formulas of the generated fields of all models whose tables a query names."""
    connection = connections[index.get_using()]
    for model in dict.fromkeys((index.model, *apps.get_models(include_auto_created=True))):
        if model._meta.db_table in sql:
            for field in model._meta.local_fields:
                if isinstance(field, models.GeneratedField):
                    yield str(field), repr(field.generated_sql(connection))
