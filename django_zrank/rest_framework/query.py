"""Query strings: fields of parameters, and a serializer for each action.

Values are spelled as :mod:`~django_zrank.codec.spelling` says. Unknown parameters are refused: if a misspelt filter
were ignored, the response would show everybody.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, ClassVar, Final, NamedTuple, Self

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.settings import api_settings

from ..codec.cursors import decode_cursor
from ..codec.facets import Facet
from ..codec.kinds import Schema, kind_of
from ..codec.spelling import NUMBER, PRINTABLE, WHOLE, spelled
from ..exceptions import FilterTooLarge
from ..index import Band, RankIndex
from ..ranking import Ranking
from ..recommendations import sides
from .serializers import enumeration, facet_schema, key_schema, one_of, shows_rank

logger = logging.getLogger("django_zrank")

GROUP: Final = "group"
"""The filter by groups, if there are any."""


# Fields


class QueryField(serializers.Field[Any, Any, Any, Any]):
    """A parameter, which is optional by default."""

    schema: Schema
    """The JSON schema of what may be given."""

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


class IntegerField(QueryField, serializers.IntegerField):
    """A whole number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        bounds = {"minimum": self.min_value, "maximum": self.max_value}
        self.schema = {"type": "integer", **{name: at for name, at in bounds.items() if at is not None}}

    def parse(self, text: str) -> int:
        return int(spelled(WHOLE, text))


class PageField(serializers.CharField):
    """The number of a page, or what else the paginator takes for one: it parses and describes pages."""

    default_error_messages = dict.fromkeys(("blank", "invalid"), _("A valid integer is required."))

    def to_internal_value(self, data: Any) -> Any:
        try:
            int(data)
        except ValueError:
            return data  # "last", or a page that isn't there
        try:
            return spelled(WHOLE, data)
        except ValueError:
            self.fail("invalid")


class ListField(QueryField):
    """Several values, the parameter repeated for each."""

    default_error_messages = {"max_length": _("At most {max_length} values can be given, not {count}.")}

    def __init__(self, child: QueryField, max_length: int, **options: Any) -> None:
        super().__init__(**options)
        self.child, self.max_length = child, max_length
        self.schema = {"type": "array", "items": child.schema, "minItems": 1, "maxItems": max_length}

    def to_internal_value(self, data: list[str]) -> Any:
        texts = self.split(data)
        if len(texts) > self.max_length:
            self.fail("max_length", max_length=self.max_length, count=len(texts))
        return [self.child.run_validation(text) for text in texts]

    def split(self, data: list[str]) -> list[str]:
        return data


class CommaField(ListField):
    """Several values, separated by commas or the parameter repeated. A comma within a value is written ``\\,``."""

    def split(self, data: list[str]) -> list[str]:
        return [part.replace("\\,", ",") for text in data for part in re.split(r"(?<!\\),", text)]


_ANY_TEXT = r"^[^\u0000]*$"


def _with_pattern(schema: Schema, pattern: str) -> Schema:
    """Return the schema of values, with a pattern if they are text."""
    return {**schema, "pattern": pattern} if schema == {"type": "string"} else schema


class MemberField(QueryField):
    """One member, by primary key."""

    default_error_messages = {"invalid": _("“{value}” is not an id.")}

    def __init__(self, index: RankIndex, **options: Any) -> None:
        super().__init__(**options)
        self.index = index
        self.schema = _with_pattern(key_schema(index), r"^[^\u0000]+$")

    def parse(self, text: str) -> Any:
        if not text:
            raise ValueError("empty")
        return self.index.parse_pk(kind_of(self.index.model._meta.pk).spelled(text))


class MembersField(CommaField):
    """Members, by primary key."""

    explode = False  # Django takes 1,000 parameters a request
    default_error_messages = {"max_length": _("At most {max_length} ids can be given, not {count}.")}

    def __init__(self, index: RankIndex, max_length: int, **options: Any) -> None:
        super().__init__(MemberField(index), max_length, **options)
        key = key_schema(index)
        self.is_text = key == {"type": "string"}
        self.schema["items"] = _with_pattern(key, r"^(?:\\,|[^,\u0000])*(?:\\,|[^,\\\u0000])$")

    def split(self, data: list[str]) -> list[str]:
        # A key that is text may begin or end with a space.
        return [text if self.is_text else text.strip(" ") for text in super().split(data)]


class PointField(QueryField):
    """A score, as Django reads the text of its column."""

    default_error_messages = {"invalid": _("“{value}” is not a score.")}
    schema = {"type": "string"}

    def __init__(self, index: RankIndex, **options: Any) -> None:
        super().__init__(**options)
        self.index = index

    def parse(self, text: str) -> Any:
        kind = self.index.ordering.first.kind
        try:
            value = kind.field.to_python(kind.spelled(text))
        except ValidationError as error:
            raise ValueError(text) from error
        self.index.ordering.ahead_of(value, reverse=False)
        return value


class CursorField(QueryField):
    """A cursor: the sort key of a member."""

    default_error_messages = {"invalid": _("This is not a cursor.")}
    schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}

    def __init__(self, index: RankIndex, **options: Any) -> None:
        super().__init__(**options)
        self.index = index

    def parse(self, text: str) -> str:
        decode_cursor(self.index, text)
        return text


class RanksField(QueryField):
    """A window of ranks: ``50``, or ``50,100`` for below and above, as in a band. Fractions are cut off.

    A side wider than the ``ceiling`` is cut to it, as a page longer than ``max_page_size`` is.
    """

    default_error_messages = {"invalid": _("“{value}” is not a number of ranks, or two as “below,above”.")}
    side, example = NUMBER, "50,100"

    def __init__(self, ceiling: Any = None, **options: Any) -> None:
        super().__init__(**options)
        pattern = f"^{self.side}(?:,{self.side})?$"
        self.schema = {"type": "string", "pattern": pattern, "example": self.example}
        self.ceiling = () if ceiling is None else sides(ceiling)
        try:
            _ = [self.units(side) for side in self.ceiling]
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"max_band or max_ranks of the view: {error}") from error

    def parse(self, text: str) -> tuple[Any, Any]:
        parts = text.split(",")
        if len(parts) > 2 or not all(map(str.strip, parts)):
            raise ValueError(_("write one distance, or two as “below,above”"))
        band = [self.parse_side(part) for part in (parts[0], parts[-1])]
        for at, highest in enumerate(self.ceiling):
            band[at] = min(band[at], highest, key=self.units)
        return band[0], band[1]

    def parse_side(self, text: str) -> Any:
        return min(int(Decimal(spelled(NUMBER, text))), 10**9)  # More than any ranking has

    def units(self, side: Any) -> Any:
        return side


class BandField(RanksField):
    """A band: ``10``, or ``50,100`` for below and above, each in the unit of the score."""

    default_error_messages = {"invalid": _("“{value}” is not a band: {reason}.")}

    def __init__(self, index: RankIndex, ceiling: Band | None = None, **options: Any) -> None:
        self.index = index
        self.kind = index.ordering.first.kind
        self.side, self.example = self.kind.distance_pattern, self.kind.distance_example
        super().__init__(ceiling, **options)

    def parse_side(self, text: str) -> Any:
        distance = self.index.parse_band(spelled(PRINTABLE, text))
        if not isinstance(distance, timedelta):
            spelled(NUMBER, text)
        return distance

    def units(self, side: Any) -> Any:
        return self.kind.distance(side)


class ParsedFilter(NamedTuple):
    """A filter: the members that have one of ``values`` at ``path``, or none of them."""

    path: str
    values: list[Any]
    negated: bool


class ValueField(QueryField):
    """A value of a facet."""

    default_error_messages = {"invalid": _("“{value}” is not a value of {field.column.verbose_name}.")}

    def __init__(self, index: RankIndex, path: str) -> None:
        super().__init__()
        self.path, self.facet = path, index.faceting.reading(path)
        self.kind = self.facet.kind(path)
        self.column = column = self.kind.field
        is_text = self.kind.is_text
        choices = [value for value, _label in column.flatchoices or () if value is not None]
        if is_text and choices and column.blank and "" not in choices:
            choices.append("")
        self.choices = choices
        self.may_be_empty = is_text and not column.primary_key and "" in (choices or [""])
        schema = facet_schema(index, path)
        self.schema = {**schema, "enum": choices} if choices else _with_pattern(schema, _ANY_TEXT)

    def parse(self, text: str) -> Any:
        text = self.kind.spelled(text)
        if "\0" in text:
            raise ValueError(text)  # No database holds it
        value = self.facet.parse_value(self.path, text)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        return value


def _or_empty(schema: Schema) -> Schema:
    """Return the schema of a filter's values, and of an empty one, which is ignored."""
    if schema.get("pattern") == _ANY_TEXT:
        return schema
    if "enum" in schema:
        return {**schema, "enum": list(dict.fromkeys([*schema["enum"], ""]))}
    return one_of([schema, {"type": "string", "enum": [""]}])


class ValuesField(CommaField):
    """Members that have one of these values."""

    negated = False

    def __init__(self, child: QueryField, path: str, max_length: int = 100, **options: Any) -> None:
        super().__init__(child, max_length, **options)
        self.path = path
        self.schema = {**self.schema, "items": _or_empty(child.schema)}

    def to_internal_value(self, data: list[str]) -> ParsedFilter:
        return ParsedFilter(self.path, list(dict.fromkeys(super().to_internal_value(data))), self.negated)


class NotValuesField(ValuesField):
    """Members that have none of these values."""

    negated = True


class FlagField(QueryField, serializers.BooleanField):
    """Members that have ``value`` at ``path`` (true), or any other (false)."""

    schema = _or_empty({"type": "boolean"})

    def __init__(self, path: str, value: Any, **options: Any) -> None:
        super().__init__(**options)
        self.path, self.value = path, value

    def parse(self, text: str) -> ParsedFilter:
        negated = ("true", "false").index(text.lower())
        return ParsedFilter(self.path, [self.value], bool(negated))


class GroupField(QueryField):
    """The name of a group."""

    default_error_messages = {"invalid": _("Give the name of a group: 1 to 200 characters.")}
    schema = {"type": "string", "pattern": r"^(?:\\,|[^,\u0000]){1,200}$"}

    def parse(self, text: str) -> str:
        if not 0 < len(text) <= 200 or "\0" in text:
            raise ValueError(text)
        return text


class FacetField(QueryField):
    """A declared facet: ``region``, or ``region,platform`` for one of several columns."""

    default_error_messages = {"invalid": _("“{value}” is not a facet. There are: {field.listed}.")}

    def __init__(self, index: RankIndex, filters: Mapping[str, str], **options: Any) -> None:
        super().__init__(**options)
        names = {path: name for name, path in filters.items()}
        facets = [facet for facet in index.faceting.all if names.keys() >= set(facet.paths)]
        self.facets = {tuple(sorted(names[path] for path in facet.paths)): facet for facet in facets}
        listed = [",".join(names[path] for path in facet.paths) for facet in facets]
        self.listed, self.schema = "; ".join(listed) or _("none"), enumeration(listed)

    def parse(self, text: str) -> Facet:
        facet = self.facets.get(tuple(sorted(text.split(","))))
        if facet is None:
            raise ValueError(text)
        return facet


class PathsField(CommaField):
    """Columns of facets, by the names of their filters."""

    def __init__(self, filters: Mapping[str, str], **options: Any) -> None:
        super().__init__(NameField(filters), len(filters), **options)


class NameField(QueryField):
    """The path behind the name of a filter."""

    default_error_messages = {"invalid": _("“{value}” is not a facet. There are: {field.listed}.")}

    def __init__(self, filters: Mapping[str, str]) -> None:
        super().__init__()
        self.filters, self.listed, self.schema = filters, ", ".join(filters), enumeration(filters)

    def parse(self, text: str) -> str:
        if text not in self.filters:
            raise ValueError(text)
        return self.filters[text]


# Serializers


class QuerySerializer(serializers.Serializer[Any]):
    """The query string of an action: filters, and in subclasses further parameters.

    Its context is what the view allows. One instance serves all requests of the same context.
    """

    switches: ClassVar[Mapping[str, tuple[Sequence[str], Any]]] = {
        "allow_groups": ((GROUP, f"{GROUP}__not"), _("No group can be given here.")),
    }
    """Attributes of the view that allow parameters, the parameters, and the message of a 400 if they aren't allowed."""

    limits: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Further values that the view decides, by their names in the context: functions of the view."""

    needed: Sequence[str] = ()
    """Parameters of which a request must have one."""

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, **context: Any) -> Self:
        """Return the serializer for what a view allows."""
        return cls(context=context)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.index: RankIndex = self.context["index"]
        self.refused: dict[str, Any] = {
            name: message
            for switch, (names, message) in self.switches.items()
            for name in names
            if not self.context[switch]
        }
        _ = self.fields  # What is wrong with the view fails at the first request

    def get_fields(self) -> dict[str, Any]:
        own, filters = self.get_parameters(), self.get_filters()
        if clash := filters.keys() & {*own, *self.context["others"]}:
            raise ImproperlyConfigured(
                f"The filter {min(clash)!r} has the name of another parameter: get_filters() of the view must "
                "give it another one."
            )
        return {name: field for name, field in {**own, **filters}.items() if name not in self.refused}

    def get_parameters(self) -> dict[str, Any]:
        """Return the fields other than filters by facets, by name."""
        some = _("Only members of this group, or of one of several.")
        none = _("No members of this group, or of any of several.")
        groups = self.index.member_sets.get(GROUP)
        if not groups:
            return {}
        return {
            GROUP: ValuesField(GroupField(), GROUP, groups.most, help_text=some),
            f"{GROUP}__not": NotValuesField(GroupField(), GROUP, groups.most, help_text=none),
        }

    def get_filters(self) -> dict[str, QueryField]:
        """Return the fields that filter by facets, by name."""
        some = _("Only members with this value, or any of several, separated by commas.")
        none = _("Only members without this value, or any of several, separated by commas.")
        null = _("Only members without a value (true), or with one (false).")
        empty = _("Only members whose value is empty text (true), or is not (false).")
        found: dict[str, QueryField] = {}
        for name, path in self.context["filters"]:
            value = ValueField(self.index, path)
            found[name] = ValuesField(value, path, help_text=some)
            found[f"{name}__not"] = NotValuesField(value, path, help_text=none)
            found[f"{name}__isnull"] = FlagField(path, None, help_text=null)
            if value.may_be_empty:
                found[f"{name}__isempty"] = FlagField(path, "", help_text=empty)
        return found

    def run_validation(self, data: Any = serializers.empty) -> dict[str, Any]:
        """Return the values given, by name, and all filters as ``filters``.

        REST framework's own goes through all fields; here only the parameters given are read, as a view may have
        hundreds of filters.
        """
        filters: dict[str, ParsedFilter] = {}
        values: dict[str, Any] = {"filters": filters}
        errors: dict[str, Any] = {}
        for name, texts in data.lists():
            try:
                field = self.get_field(name, data)
                if isinstance(field, (ValuesField, FlagField)):
                    texts = list(filter(None, texts))  # "Any" of an HTML form
                if field is None or not texts:
                    continue
                is_list = isinstance(field, ListField)
                if len(texts) > 1 and not is_list:
                    # Proxies and frameworks differ in which of them counts.
                    raise serializers.ValidationError([_("Give this parameter once.")], code="repeated")
                value = field.run_validation(texts if is_list else texts[0])
                (filters if isinstance(value, ParsedFilter) else values)[name] = value
            except serializers.ValidationError as error:
                errors[name] = error.detail
        if self.needed and not any(name in data for name in self.needed):
            errors[self.needed[0]] = [_("This field is required.")]
        if errors:
            raise serializers.ValidationError(errors, code="invalid")
        return values

    def get_field(self, name: str, data: QueryDict) -> Any:
        """Return the field of a parameter; None if something else reads it.

        Raises ``ValidationError`` for an unknown parameter, naming those with similar names.
        """
        if name in self.refused:
            raise serializers.ValidationError([self.refused[name]], code="not_allowed")
        others = self.context["others"]
        if name in self.fields or name in others or self.context["allow_unknown"]:
            return self.fields.get(name)
        message: Any = _("There is no such parameter.")
        if len(name) <= 50 and len(data) <= 20:  # comparing many names, or long ones, would take time
            by_lower = {one.lower(): one for one in {*self.fields, *others}}
            if close := get_close_matches(name.lower(), by_lower):
                similar = ", ".join(by_lower[one] for one in close)
                message = _("There is no such parameter. Did you mean {names}?").format(names=similar)
        raise serializers.ValidationError([message], code="unknown")


class ListQuery(QuerySerializer):
    """The query string of a leaderboard. Its paginator parses the pages; here they only have to be numbers."""

    limits = {"pages": methodcaller("get_page_parameters")}

    def get_parameters(self) -> dict[str, Any]:
        texts = {1: _("The number of results on a page."), 0: _("The number of results to skip.")}
        ids = _("Only these members, as they rank among all: ids, separated by commas.")
        pages = {
            name: PageField() if lowest is None else IntegerField(min_value=lowest, help_text=texts[lowest])
            for name, lowest in self.context["pages"]
        }
        return {**super().get_parameters(), **pages, "pk": MembersField(self.index, 100, help_text=ids)}


class StandingQuery(QuerySerializer):
    """The query string of ``GET /leaderboard/<pk>/``."""

    limits = {"shows_rank": lambda view: shows_rank(view.get_serializer_class())}

    def get_parameters(self) -> dict[str, Any]:
        found, filters = super().get_parameters(), dict(self.context["filters"])
        if filters and self.context["shows_rank"]:
            help_text = _("Also the rankings of these facets that the member is in, separated by commas.")
            found["in"] = PathsField(filters, help_text=help_text)
        return found


class MineQuery(QuerySerializer):
    """The query string of an action about the user's own row."""

    def get_parameters(self) -> dict[str, Any]:
        help_text = _(
            "The id of the member, if several are yours. Default: the only one that passes the filters."
        )
        return {**super().get_parameters(), "member": MemberField(self.index, help_text=help_text)}


class NumberQuery(QuerySerializer):
    """The query string of an action that returns ``n`` results."""

    n_text = _("The number of members.")

    def get_parameters(self) -> dict[str, Any]:
        n = IntegerField(min_value=1, max_value=self.context["max_n"], help_text=self.n_text)
        return {**super().get_parameters(), "n": n}


class AroundQuery(NumberQuery):
    """The query string of ``GET /leaderboard/<pk>/around/``."""

    def get_parameters(self) -> dict[str, Any]:
        after = _("The cursor of an earlier response: the members after that.")
        before = _("The cursor of an earlier response: the members before that.")
        cursors = {
            "after": CursorField(self.index, help_text=after),
            "before": CursorField(self.index, help_text=before),
        }
        return {**super().get_parameters(), **cursors}

    def get_field(self, name: str, data: QueryDict) -> Any:
        if name == "before" and "after" in data:
            raise serializers.ValidationError([_("Give either after or before.")], code="invalid")
        return super().get_field(name, data)


class MeQuery(MineQuery, StandingQuery):
    """The query string of ``GET /leaderboard/me/``."""


class AroundMeQuery(MineQuery, AroundQuery):
    """The query string of ``GET /leaderboard/me/around/``."""


class CountsQuery(NumberQuery):
    """The query string of ``GET /leaderboard/counts/``."""

    n_text = _("The number of values.")
    needed = ("facet",)

    def get_parameters(self) -> dict[str, Any]:
        help_text = _("What to count by: a facet, or the parts of one, separated by commas.")
        facet = FacetField(self.index, dict(self.context["filters"]), help_text=help_text, required=True)
        return {**super().get_parameters(), "facet": facet}


class RecommendationQuery(NumberQuery):
    """The query string of ``GET /recommendations/``."""

    switches: ClassVar[Mapping[str, tuple[Sequence[str], Any]]] = {
        **QuerySerializer.switches,
        "allow_band": (("band", "ranks", "widen"), _("No band can be given here.")),
        "allow_seed": (("seed",), _("No seed can be given here.")),
        "allow_near": (("near",), _("No score can be given here.")),
    }
    limits = {
        "max_band": methodcaller("get_max_band"),
        "max_ranks": attrgetter("max_ranks"),
        "max_excluded": attrgetter("max_excluded"),
    }

    def get_parameters(self) -> dict[str, Any]:
        context, index = self.context, self.index
        distance = _("The largest difference from your score: one distance, or two as “below,above”.")
        window = _(
            "The largest difference from your rank, instead of a band: one number, or two as “below,above”."
        )
        steps = _(
            "A wider band to try if the band holds too few members. Repeat it for further steps, in order."
        )
        ids = _("Ids of members to leave out, separated by commas.")
        band = BandField(index, context["max_band"], help_text=distance)
        ranks = RanksField(context["max_ranks"], help_text=window)
        self.widen_ranks = ListField(ranks, max_length=10)
        self.needed = ("band", "ranks") if index.get_band() is None else ()
        return {
            **super().get_parameters(),
            "band": band,
            "ranks": ranks,
            "widen": ListField(band, max_length=10, help_text=steps),
            "exclude": MembersField(index, context["max_excluded"], help_text=ids),
            "seed": IntegerField(help_text=_("The same seed draws the same members.")),
            "near": PointField(index, help_text=_("A score to draw around, instead of a member's.")),
            "member": MemberField(index, help_text=_("The id of the member to draw for. Default: yours.")),
        }

    def get_field(self, name: str, data: QueryDict) -> Any:
        field = super().get_field(name, data)
        return self.widen_ranks if name == "widen" and "ranks" in data else field


def narrow(ranking: Ranking, filters: Mapping[str, ParsedFilter]) -> Ranking:
    """Return the members of ``ranking`` that meet all ``filters``, each by the name of its parameter.

    Raises ``ValidationError`` if no declared facets can answer that.
    """
    wanted: dict[str, list[Any]] = {}
    names = {path: name for name, (path, _values, _negated) in filters.items()}
    for path, values, negated in filters.values():
        if not negated:
            wanted[path] = [value for value in values if value in wanted.get(path, values)]
    try:
        # Filters in one call, so that a composite facet is found. Exclusions one by one: together they mean "not all".
        if wanted:
            ranking = ranking.filter(**{f"{path}__in": values for path, values in wanted.items()})
        for path, values, negated in filters.values():
            if negated:
                ranking = ranking.exclude(**{f"{path}__in": values})
    except FilterTooLarge:
        raise
    except ValueError as error:
        logger.warning("%s", error)  # Names what to declare, which is not for clients
        name = names.get(str(error).partition(": ")[0], api_settings.NON_FIELD_ERRORS_KEY)
        message = _("Members can't be filtered by this alone.")
        raise serializers.ValidationError({name: [message]}, code="invalid") from error
    return ranking
