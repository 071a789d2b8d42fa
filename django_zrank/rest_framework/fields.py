"""Fields of query strings.

A query string is text: ``" 7"``, ``7.0`` and ``٣`` are not read as numbers. The text that a field takes is described
by ``get_schema()``, as JSON schema, where drf-spectacular doesn't know the field by its base class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..codec.facets import Facet
from ..codec.fields import follow, value_field
from ..codec.units import Distance
from ..index import Band, RankIndex
from ..recommendations import sides
from .schemas import NUMBER, Schema, band_pattern, choices_of, enumeration, facet_schema, key_schema

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
    "StepsField",
    "ValueField",
    "ValuesField",
]


_WHOLE: Final = re.compile("-?[0-9]{1,1000}")


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
        side = band_pattern(self.index)
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


class ValueField(QueryField):
    """A value of a facet."""

    default_error_messages = {"invalid": _("“{value}” is not a value of {field.model_field.verbose_name}.")}

    def __init__(self, index: RankIndex, path: str) -> None:
        super().__init__()
        self.index, self.path = index, path
        self.facet = index.faceting.reading(path)
        self.model_field = value_field(self.facet.field(path))
        self.choices = choices_of(self.model_field)
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
