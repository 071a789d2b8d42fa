"""Parameters that filter a ranking by facets and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from django.db import models
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import ValidationError
from rest_framework.settings import api_settings

from ..codec.facets import Facet
from ..codec.fields import value_field
from ..codec.filters import GROUP, MOST_GROUPS
from ..index import RankIndex
from ..ranking import Ranking
from .parameters import FlagParameter, Parameter, RefusedParameter, values_of
from .schemas import Schema, choices_of, enumeration, facet_schema

__all__ = [
    "FacetParameter",
    "GroupParameter",
    "NullParameter",
    "ParsedFilter",
    "ValuesParameter",
    "filter_parameters",
    "narrow",
]


class ParsedFilter(NamedTuple):
    """A filter: the members that have one of ``values`` at ``path``, or none of them."""

    path: str
    values: list[Any]
    negated: bool


class ValuesParameter(Parameter):
    """Members that have one of these values or, if ``negated``, none of them, as :func:`values_of` separates them."""

    repeatable = True

    limit: ClassVar[int] = 100
    """The most values."""

    help_texts: ClassVar[tuple[Any, Any]] = (
        _("Only members with this value, or any of several, separated by commas."),
        _("Only members without this value, or any of several, separated by commas."),
    )

    def __init__(self, index: RankIndex, path: str, *, negated: bool = False) -> None:
        super().__init__(self.help_texts[negated])
        self.index, self.path, self.negated = index, path, negated
        self.facet = index.faceting.reading(path)
        self.field = value_field(self.facet.field(path))

    def read(self, texts: Sequence[str]) -> ParsedFilter:
        parts = values_of(texts)
        if len(parts) > self.limit:
            message = _("At most {limit} values can be given, not {count}.")
            raise ValidationError([message.format(limit=self.limit, count=len(parts))], code="too_many")
        return ParsedFilter(self.path, list(dict.fromkeys(map(self.read_one, parts))), self.negated)

    def read_one(self, text: str) -> Any:
        try:
            value = self._parse(text)
            choices = choices_of(self.field)
            if choices and value not in choices:
                raise ValueError(text)
        except ValueError:
            message = _("“{value}” is not a value of {name}.")
            name = self.field.verbose_name
            raise ValidationError([message.format(value=text, name=name)], code="invalid") from None
        return value

    def _parse(self, text: str) -> Any:
        if isinstance(self.field, models.BooleanField):
            text = _BOOLEANS.get(text.lower(), "")
        elif isinstance(self.field, models.IntegerField) and not re.fullmatch("-?[0-9]{1,1000}", text):
            raise ValueError(text)  # int() reads more: " 7", "1_000", "٣"
        if "\0" in text:
            raise ValueError(text)  # No database holds it
        return self.facet.parse_value(self.path, text)

    def get_schema(self) -> Schema:
        return {"type": "array", "items": self._get_item_schema(), "minItems": 1, "maxItems": self.limit}

    def _get_item_schema(self) -> Schema:
        items = facet_schema(self.index, self.path)
        if choices := choices_of(self.field):
            items["enum"] = choices
        elif items == {"type": "string"}:
            items["pattern"] = r"^[^\u0000]*$"
        return items


_BOOLEANS: Final = {"true": "True", "false": "False"}


class GroupParameter(ValuesParameter):
    """Members of one of these groups, or of none of them."""

    help_texts = (
        _("Only members of this group, or of one of several."),
        _("No members of this group, or of any of several."),
    )
    limit = MOST_GROUPS

    def __init__(self, *, negated: bool = False) -> None:
        Parameter.__init__(self, self.help_texts[negated])
        self.path, self.negated = GROUP, negated

    def read_one(self, text: str) -> str:
        if not 0 < len(text) <= 200 or "\0" in text:
            raise ValidationError([_("Give the name of a group: 1 to 200 characters.")], code="invalid")
        return text

    def _get_item_schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(?:\\,|[^,\u0000]){1,200}$"}


class NullParameter(FlagParameter):
    """Members that have no value, or those that have one."""

    def __init__(self, path: str) -> None:
        super().__init__(_("Only members without a value (true), or with one (false)."))
        self.path = path

    def read(self, texts: Sequence[str]) -> ParsedFilter:
        return ParsedFilter(self.path, [None], not self.read_one(texts[0]))


class FacetParameter(Parameter):
    """A declared facet: ``region``, or ``region,platform`` for one of several columns."""

    required = True

    def __init__(self, index: RankIndex, filters: Mapping[str, str], help_text: Any = "") -> None:
        super().__init__(help_text)
        names = {path: name for name, path in filters.items()}
        facets = (facet for facet in index.faceting.all if names.keys() >= set(facet.paths))
        self.choices = {",".join(names[path] for path in facet.paths): facet for facet in facets}

    def read_one(self, text: str) -> Facet:
        wanted = sorted(text.split(","))
        for name, facet in self.choices.items():
            if sorted(name.split(",")) == wanted:
                return facet
        message = _("“{value}” is not a facet. There are: {facets}.")
        raise ValidationError(
            [message.format(value=text, facets="; ".join(self.choices) or _("none"))], code="invalid"
        )

    def get_schema(self) -> Schema:
        return enumeration(self.choices)


def filter_parameters(
    index: RankIndex, filters: Mapping[str, str], *, groups: bool
) -> Iterator[tuple[str, Parameter]]:
    """The parameters that filter a ranking, and their names. ``filters``: the path that each name stands for."""
    for name, path in filters.items():
        yield name, ValuesParameter(index, path)
        yield f"{name}__not", ValuesParameter(index, path, negated=True)
        yield f"{name}__isnull", NullParameter(path)
    for name, negated in ((GROUP, False), (f"{GROUP}__not", True)):
        yield (
            name,
            GroupParameter(negated=negated) if groups else RefusedParameter(_("No group can be given here.")),
        )


def narrow(ranking: Ranking, conditions: Mapping[str, ParsedFilter]) -> Ranking:
    """The members of ``ranking`` that meet all ``conditions``, each by the name of its parameter.

    Raises ``ValidationError`` if no declared facets can answer that.
    """
    wanted: dict[str, list[Any]] = {}
    names: dict[str, str] = {}
    for name, (path, values, negated) in conditions.items():
        names[path] = name
        if not negated:
            wanted[path] = [value for value in values if value in wanted.get(path, values)]
    try:
        # Filters in one call, so that a composite facet is found. Exclusions one by one: together they mean "not all".
        if wanted:
            ranking = ranking.filter(**{f"{path}__in": values for path, values in wanted.items()})
        for path, values, negated in conditions.values():
            if negated:
                ranking = ranking.exclude(**{f"{path}__in": values})
    except ValueError as error:
        path, _separator, message = str(error).partition(": ")
        name = names.get(path, api_settings.NON_FIELD_ERRORS_KEY)
        raise ValidationError({name: [message or str(error)]}, code="invalid") from error
    return ranking
