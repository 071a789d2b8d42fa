"""Fields of query strings, and the JSON schemas of an index's values.

A query string is text: ``" 7"``, ``7.0`` and ``٣`` are not read as numbers. The text that a field takes is described
by ``get_schema()``, as JSON schema, where drf-spectacular doesn't know the field by its base class. This imports
nothing of drf-spectacular.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..codec.facets import Facet
from ..codec.fields import follow, value_field
from ..codec.units import Day, Distance, Moment
from ..index import Band, RankIndex
from ..recommendations import sides

__all__ = [
    "BandField",
    "FacetField",
    "FlagField",
    "GroupField",
    "IntegerField",
    "MemberField",
    "MembersField",
    "PageField",
    "ParsedFilter",
    "PointField",
    "QueryField",
    "RanksField",
    "Schema",
    "StepsField",
    "ValueField",
    "ValuesField",
    "component_name",
    "distance_schema",
    "enumeration",
    "facet_schema",
    "key_schema",
    "object_schema",
    "one_of",
    "score_schema",
]


# JSON schemas

Schema = dict[str, Any]

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


def facet_schema(index: RankIndex, path: str) -> Schema:
    """A value of a facet, as a response shows it. A row may have a value that ``choices`` doesn't list."""
    return field_schema(index.faceting.reading(path).field(path))


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


# Fields

_WHOLE: Final = re.compile("-?[0-9]{1,1000}")

NUMBER: Final = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
"""A distance between numbers, as JavaScript and Python write one."""

SPAN: Final = (
    r"(?:P[0-9]{1,5}D|PT[0-9]{1,6}[HMS]|(?:[0-9]{1,5} )?[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]{1,6})?)"
)
"""A distance between times in the notations that the documentation names. Django reads some more."""


class QueryField(serializers.Field[Any, Any, Any, Any]):
    """A parameter of a query string, which is optional by default."""

    repeatable: ClassVar[bool] = False
    """True if it may be given several times. The field then gets a list of texts."""

    explode: ClassVar[bool | None] = None
    """In OpenAPI schemas: False to separate values by commas."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, **options})

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self.parse(data)
        except (ArithmeticError, ValueError) as error:
            self.fail("invalid", value=data, reason=error, field=self)

    def parse(self, text: str) -> Any:
        """Return the value of ``text``. Raises ``ValueError`` if it has none."""
        raise NotImplementedError

    def get_schema(self) -> Schema | None:
        """Return the JSON schema of what may be given; None if it is that of REST framework's own field."""
        return None


class IntegerField(QueryField, serializers.IntegerField):
    """A whole number."""

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(text)
        return int(text)


class PageField(QueryField):
    """The number of a page, which the paginator parses and describes."""

    default_error_messages = {"invalid": _("A valid integer is required.")}

    def parse(self, text: str) -> str:
        if not text:
            raise ValueError("empty")  # REST framework would serve the first page
        return text

    def get_schema(self) -> Schema:
        return {"type": "string"}


class ListField(QueryField):
    """Several values, separated by commas or the parameter repeated. A comma within a value is written ``\\,``."""

    repeatable = True
    default_error_messages = {"max_length": _("At most {max_length} values can be given, not {count}.")}

    def __init__(self, child: QueryField, max_length: int, **options: Any) -> None:
        super().__init__(**options)
        self.child, self.max_length = child, max_length

    def to_internal_value(self, data: list[str]) -> Any:
        texts = self.split(data)
        if len(texts) > self.max_length:
            self.fail("max_length", max_length=self.max_length, count=len(texts))
        return [self.child.run_validation(text) for text in texts]

    def split(self, data: list[str]) -> list[str]:
        return [part.replace("\\,", ",") for text in data for part in re.split(r"(?<!\\),", text)]

    def get_schema(self) -> Schema:
        return {
            "type": "array",
            "items": self.get_item_schema(),
            "minItems": 1,
            "maxItems": self.max_length,
        }

    def get_item_schema(self) -> Schema:
        return self.child.get_schema() or {}


# Members


class MemberField(QueryField):
    """One member, by primary key."""

    default_error_messages = {"invalid": _("“{value}” is not an id.")}

    def __init__(self, index: RankIndex, **options: Any) -> None:
        super().__init__(**options)
        self.index = index

    def parse(self, text: str) -> Any:
        if not text:
            raise ValueError("empty")
        return self.index.parse_pk(text)

    def get_schema(self) -> Schema:
        schema = key_schema(self.index)
        return {**schema, "pattern": r"^[^\u0000]+$"} if schema == {"type": "string"} else schema


class MembersField(ListField):
    """Members, by primary key."""

    explode = False  # Django takes 1,000 parameters a request
    default_error_messages = {"max_length": _("At most {max_length} ids can be given, not {count}.")}

    def split(self, data: list[str]) -> list[str]:
        return [text.strip() for text in super().split(data)]

    def get_item_schema(self) -> Schema:
        schema = super().get_item_schema()
        if "pattern" in schema:
            schema["pattern"] = r"^(?:\\,|[^,\u0000])*[^\s,\\\u0000](?:\\,|[^,\\\u0000])*$"
        return schema


# Scores and distances


class PointField(QueryField):
    """A score, as Django reads the text of its column."""

    default_error_messages = {"invalid": _("“{value}” is not a score.")}

    def __init__(self, index: RankIndex, **options: Any) -> None:
        super().__init__(**options)
        *_path, self.column = follow(index.model, index.ordering.first.path)
        self.order = index.ordering

    def parse(self, text: str) -> Any:
        field = value_field(self.column)
        if isinstance(field, models.IntegerField) and not _WHOLE.fullmatch(text):
            raise ValueError(text)  # int() reads more: " 7", "1_000", "٣"
        try:
            value: Any = field.to_python(text)
        except ValidationError as error:
            raise ValueError(text) from error
        self.order.ahead_of(value, reverse=False)
        return value

    def get_schema(self) -> Schema:
        return {"type": "string"}


def _band_pattern(index: RankIndex) -> str:
    """One side of a band, as a request spells it: a regular expression."""
    match index.ordering.first.kind:
        case Day():
            return f"(?:{NUMBER}|{SPAN})"
        case Moment():
            return SPAN
    return NUMBER


class BandField(QueryField):
    """A band: ``10``, or ``50,100`` for below and above, each in the unit of the score.

    A side wider than the ``ceiling`` is cut to it, as a page longer than ``max_page_size`` is.
    """

    default_error_messages = {"invalid": _("“{value}” is not a band: {reason}.")}

    def __init__(self, index: RankIndex, ceiling: Band | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.index = index
        self.units = index.ordering.first.kind.distance
        try:
            self.ceiling = [] if ceiling is None else [(one, self.units(one)) for one in sides(ceiling)]
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"max_band of {index!r}: {error}") from error

    def parse(self, text: str) -> Band:
        band = [self._distance(one) for one in _two(text)]
        for at, (highest, units) in enumerate(self.ceiling):
            if self.units(band[at]) > units:
                band[at] = highest
        return (band[0], band[1])

    def _distance(self, text: str) -> Distance:
        distance = self.index.parse_band(text)
        if not isinstance(distance, timedelta) and not re.fullmatch(NUMBER, text):
            raise ValueError(_("write a number such as 10 or 2.5"))
        return distance

    def get_schema(self) -> Schema:
        side = _band_pattern(self.index)
        example = "50,100" if side == NUMBER else "P3D,P7D"
        return {"type": "string", "pattern": f"^{side}(?:,{side})?$", "example": example}


class RanksField(QueryField):
    """A window of ranks: ``50``, or ``50,100`` for below and above, as in a band. Fractions are cut off."""

    default_error_messages = {"invalid": _("“{value}” is not a number of ranks, or two as “below,above”.")}

    def __init__(self, ceiling: int | tuple[int, int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.ceiling = sides(10**9 if ceiling is None else ceiling)  # More than any ranking has

    def parse(self, text: str) -> tuple[int, ...]:
        if not re.fullmatch(f"{NUMBER}(?:,{NUMBER})?", text):
            raise ValueError(text)
        return tuple(min(int(Decimal(one)), most) for one, most in zip(_two(text), self.ceiling, strict=True))

    def get_schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NUMBER}(?:,{NUMBER})?$", "example": "50"}


class StepsField(ListField):
    """Bands, or windows of ranks, to try in turn: the parameter repeated for every step."""

    default_error_messages = {"max_length": _("Ensure this field has no more than {max_length} elements.")}

    def split(self, data: list[str]) -> list[str]:
        return data


def _two(text: str) -> tuple[str, str]:
    parts = text.split(",")
    if not text.strip():
        raise ValueError(_("write a distance, or two as “below,above”"))
    if len(parts) > 2:
        raise ValueError(_("write one distance, or two as “below,above”"))
    return parts[0], parts[-1]


# Filters


class ParsedFilter(NamedTuple):
    """A filter: the members that have one of ``values`` at ``path``, or none of them."""

    path: str
    values: list[Any]
    negated: bool


def _choices_of(field: Any) -> list[Any]:
    """The values of a field with ``choices``; none of a field without."""
    values = [value for value, _label in getattr(field, "flatchoices", ()) or () if value is not None]
    if values and "" not in values and getattr(field, "blank", False) and isinstance(values[0], str):
        values.append("")
    return values


class ValueField(QueryField):
    """A value of a facet."""

    default_error_messages = {"invalid": _("“{value}” is not a value of {field.model_field.verbose_name}.")}

    def __init__(self, index: RankIndex, path: str) -> None:
        super().__init__()
        self.index, self.path = index, path
        self.facet = index.faceting.reading(path)
        self.model_field = value_field(self.facet.field(path))
        self.choices = _choices_of(self.model_field)
        is_text = isinstance(self.model_field, (models.CharField, models.TextField))
        self.may_be_empty = is_text and not self.model_field.primary_key and "" in (self.choices or [""])

    def parse(self, text: str) -> Any:
        if isinstance(self.model_field, models.BooleanField):
            text = {"true": "True", "false": "False"}.get(text.lower(), "")
        elif isinstance(self.model_field, models.IntegerField) and not _WHOLE.fullmatch(text):
            raise ValueError(text)  # int() reads more: " 7", "1_000", "٣"
        if "\0" in text:
            raise ValueError(text)  # No database holds it
        value = self.facet.parse_value(self.path, text)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        return value

    def get_schema(self) -> Schema:
        schema = facet_schema(self.index, self.path)
        if self.choices:
            return {**schema, "enum": self.choices}
        return {**schema, "pattern": r"^[^\u0000]*$"} if schema == {"type": "string"} else schema


class ValuesField(ListField):
    """Members that have one of these values or, if ``negated``, none of them."""

    def __init__(
        self, child: QueryField, path: str, *, negated: bool = False, max_length: int = 100, **options: Any
    ) -> None:
        super().__init__(child, max_length, **options)
        self.path, self.negated = path, negated

    def to_internal_value(self, data: list[str]) -> ParsedFilter:
        return ParsedFilter(self.path, list(dict.fromkeys(super().to_internal_value(data))), self.negated)


class GroupField(QueryField):
    """The name of a group."""

    default_error_messages = {"invalid": _("Give the name of a group: 1 to 200 characters.")}

    def parse(self, text: str) -> str:
        if not 0 < len(text) <= 200 or "\0" in text:
            raise ValueError(text)
        return text

    def get_schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(?:\\,|[^,\u0000]){1,200}$"}


class FlagField(QueryField, serializers.BooleanField):
    """Members that have ``value`` at ``path`` (true), or any other (false)."""

    def __init__(self, path: str, value: Any, **options: Any) -> None:
        super().__init__(**options)
        self.path, self.value = path, value

    def parse(self, text: str) -> ParsedFilter:
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return ParsedFilter(self.path, [self.value], negated=text.lower() == "false")


class FacetField(QueryField):
    """A declared facet: ``region``, or ``region,platform`` for one of several columns."""

    default_error_messages = {"invalid": _("“{value}” is not a facet. There are: {field.listed}.")}

    def __init__(self, index: RankIndex, filters: Mapping[str, str], **options: Any) -> None:
        super().__init__(**options)
        names = {path: name for name, path in filters.items()}
        facets = (facet for facet in index.faceting.all if names.keys() >= set(facet.paths))
        self.choices = {",".join(names[path] for path in facet.paths): facet for facet in facets}
        self.listed = "; ".join(self.choices) or _("none")

    def parse(self, text: str) -> Facet:
        wanted = sorted(text.split(","))
        for name, facet in self.choices.items():
            if sorted(name.split(",")) == wanted:
                return facet
        raise ValueError(text)

    def get_schema(self) -> Schema:
        return enumeration(self.choices)
