"""JSON schemas of the values of an index. This imports nothing of drf-spectacular."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db import models

from ..codec.fields import follow, value_field
from ..codec.times import Day, Moment
from ..index import RankIndex

__all__ = [
    "NUMBER",
    "SPAN",
    "Schema",
    "band_pattern",
    "choices_of",
    "component_name",
    "distance_schema",
    "enumeration",
    "facet_schema",
    "key_schema",
    "object_schema",
    "one_of",
    "score_schema",
]

Schema = dict[str, Any]

NUMBER: Final = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
"""A distance between numbers, as JavaScript and Python write one."""

SPAN: Final = (
    r"(?:P[0-9]{1,5}D|PT[0-9]{1,6}[HMS]|(?:[0-9]{1,5} )?[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]{1,6})?)"
)
"""A distance between times in the notations that the documentation names. Django reads some more."""

_TYPES: Final[tuple[tuple[type[models.Field[Any, Any]], Schema], ...]] = (
    (models.BooleanField, {"type": "boolean"}),
    (models.IntegerField, {"type": "integer"}),
    (models.FloatField, {"type": "number"}),
    (models.DecimalField, {"type": "number"}),
    (models.UUIDField, {"type": "string", "format": "uuid"}),
    (models.DateTimeField, {"type": "string", "format": "date-time"}),
    (models.DateField, {"type": "string", "format": "date"}),
    (models.DurationField, {"type": "string", "description": "Seconds.", "example": "90.0"}),
    (models.Field, {"type": "string"}),
)


def field_schema(field: Any) -> Schema:
    """The schema of a model field's values, as REST framework's encoder writes them."""
    field = value_field(field)  # The primary key of a child model is a relation, for one
    if isinstance(field, models.GenericIPAddressField):
        protocols = [field.protocol.lower()] if field.protocol.lower() != "both" else ["ipv4", "ipv6"]
        return one_of({"type": "string", "format": one, "maxLength": field.max_length} for one in protocols)
    return dict(next(schema for kind, schema in _TYPES if isinstance(field, kind)))


def key_schema(index: RankIndex) -> Schema:
    return field_schema(index.model._meta.pk)


def score_schema(index: RankIndex) -> Schema:
    *_relations, field = follow(index.model, index.ordering.first.path)
    return field_schema(field)


def distance_schema(index: RankIndex) -> Schema:
    """One side of a band, as a response shows it."""
    duration = {"type": "string", "description": "A duration.", "example": "7 00:00:00"}
    match index.ordering.first.kind:
        case Day():
            return one_of([duration, {"type": "number", "description": "Days."}])
        case Moment():
            return duration
    return {"type": "number", "example": 10}


def band_pattern(index: RankIndex) -> str:
    """One side of a band, as a request spells it: a regular expression."""
    match index.ordering.first.kind:
        case Day():
            return f"(?:{NUMBER}|{SPAN})"
        case Moment():
            return SPAN
    return NUMBER


def facet_schema(index: RankIndex, path: str) -> Schema:
    """A value of a facet, as a response shows it. A row may have a value that ``choices`` doesn't list."""
    return field_schema(index.faceting.reading(path).field(path))


def choices_of(field: Any) -> list[Any]:
    """The values of a field with ``choices``; none of a field without."""
    values = [value for value, _label in getattr(field, "flatchoices", ()) or () if value is not None]
    if values and "" not in values and getattr(field, "blank", False) and isinstance(values[0], str):
        values.append("")
    return values


def component_name(text: str) -> str:
    """The words of ``text`` as the name of a component."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", text))


def enumeration(words: Iterable[str]) -> Schema:
    """One of ``words``; any text if there are none, as an enumeration must not be empty."""
    listed = list(words)
    return {"type": "string", "enum": listed} if listed else {"type": "string"}


def one_of(schemas: Iterable[Schema]) -> Schema:
    """Any of ``schemas``, those of several indexes."""
    different: list[Schema] = []
    for schema in schemas:
        different += [one for one in schema.get("anyOf", [schema]) if one not in different]
    # Not oneOf: a whole number is a number too.
    return different[0] if len(different) == 1 else {"anyOf": different} if different else {}


def object_schema(**properties: Mapping[str, Any]) -> Schema:
    """An object that has all of ``properties``."""
    return {"type": "object", "properties": properties, "required": list(properties)}
