"""What a request may ask for, read out of the query string.

Every refusal is a 400 whose body names the parameter. A parameter that isn't known is ignored, unless it looks
like a filter: whoever misspells one would get everybody.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.http import QueryDict
from django.utils.duration import duration_string
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.settings import api_settings

from ..conf import get_settings
from ..facets import Facet
from ..filters import GROUP
from ..index import Band, RankIndex
from ..ordering import Distance
from ..ranking import Ranking
from .pagination import get_page_parameters

__all__ = [
    "AroundParameters",
    "BandField",
    "CountsParameters",
    "FacetField",
    "MemberField",
    "MembersField",
    "NullField",
    "RankingParameters",
    "RanksField",
    "RecommendationParameters",
    "RefusedField",
    "RepeatedField",
    "ValueField",
    "ValuesField",
]

_KINDS: Final = ("", "__not", "__isnull")
"""What may follow the name of a filter."""

_COMMA: Final = re.compile(r"(?<!\\),")
"""A comma between two values; one within a value has a backslash before it."""


def _index(field: serializers.Field[Any, Any, Any, Any]) -> RankIndex:
    """The index that the view asks."""
    index: RankIndex = field.context["view"].get_index()
    return index


class MemberField(serializers.Field[Any, str, Any, Any]):
    """One member, by primary key: not empty, and in a list (``MembersField``) without a comma of its own."""

    default_error_messages = {"invalid": _("“{value}” is not an id.")}

    def to_internal_value(self, data: str) -> Any:
        if not data:
            self.fail("invalid", value=data)
        try:
            return _index(self).parse_pk(data)
        except (ArithmeticError, ValueError):
            self.fail("invalid", value=data)


class BandField(serializers.Field[Band, str, Any, Any]):
    """A band: ``10``, or ``50,100`` for below and above, each in the unit of the score."""

    default_error_messages = {
        "invalid": _("“{value}” is not a band: {reason}."),
        "not_finite": _("it is not finite"),
        "too_many": _("write one distance, or two as “below,above”"),
    }

    def to_internal_value(self, data: str) -> Band:
        distances = data.split(",")
        try:
            if len(distances) > 2:
                raise ValueError(self.error_messages["too_many"])
            below, *above = map(self._distance, distances)
        except (ArithmeticError, ValueError) as error:
            self.fail("invalid", value=data, reason=str(error))
        return (below, above[0]) if above else below

    def to_representation(self, value: Any) -> list[Any]:
        """[below, above], fit to be asked for again: seconds are not, since a date's band counts in days."""
        return [duration_string(one) if isinstance(one, timedelta) else one for one in value]

    def _distance(self, text: str) -> Distance:
        distance = _index(self).parse_band(text)
        if isinstance(distance, Decimal) and not math.isfinite(float(distance)):
            raise ValueError(self.error_messages["not_finite"])  # JSON could not hold it
        return distance


class RepeatedField(serializers.ListField):
    """A parameter that may be given several times. What is wrong with one value is said without its place."""

    def run_child_validation(self, data: Iterable[Any]) -> list[Any]:
        return [self.child.run_validation(item) for item in data]


class MembersField(RepeatedField):
    """Members, by primary keys: separated by commas, in one parameter or in several."""

    child = MemberField()

    default_error_messages = {"too_many": _("At most {limit} ids can be given, not {count}.")}

    def to_internal_value(self, data: list[str]) -> list[Any]:
        pks = [pk.strip() for text in data for pk in text.split(",")]
        limit = self.context["view"].max_excluded
        if len(pks) > limit:
            self.fail("too_many", limit=limit, count=len(pks))
        return super().to_internal_value(pks)


class RanksField(serializers.Field[Any, str, Any, Any]):
    """A window of ranks: ``50``, or ``50,100`` for behind me and before me, as in a band."""

    default_error_messages = {"invalid": _("“{value}” is not a number of ranks, or two as “below,above”.")}

    def to_internal_value(self, data: str) -> int | tuple[int, int]:
        numbers = data.split(",")
        # At most nine digits each: there are no more ranks.
        if len(numbers) > 2 or not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
            self.fail("invalid", value=data)
        below, *above = map(int, numbers)
        return (below, above[0]) if above else below


class RefusedField(serializers.Field[Any, Any, Any, Any]):
    """A parameter that this view doesn't take. Ignored, it would be missed without a word."""

    def __init__(self, message: Any) -> None:
        super().__init__(required=False, error_messages={"not_allowed": message})

    def to_internal_value(self, data: Any) -> Any:
        self.fail("not_allowed")


# Filters: fields that narrow a ranking


class ValueField(serializers.Field[Any, str, Any, Any]):
    """One value of the facet at ``path``, in its field's own type."""

    default_error_messages = {"invalid": _("“{value}” is not a value of {name}.")}

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def to_internal_value(self, data: str) -> Any:
        facet = _index(self).faceting.reading(self.path)
        field = facet.field(self.path)
        # JSON's true is Python's True.
        text = data.capitalize() if isinstance(field, models.BooleanField) else data
        try:
            if "\0" in text:
                raise ValueError("no database holds it")
            return facet.parse_value(self.path, text)
        except ValueError:
            self.fail("invalid", value=data, name=field.verbose_name)


class ValuesField(RepeatedField):
    """Whoever has one of these values, or with ``excluded`` whoever has none of them.

    Separated by commas, in one parameter or in several. A comma within a value is written ``\\,``.
    """

    default_error_messages = {"too_many": _("At most {limit} values can be given, not {count}.")}

    limit = 100

    def __init__(self, path: str, *, excluded: bool = False, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.path, self.excluded = path, excluded

    def to_internal_value(self, data: list[str]) -> list[Any]:
        texts = [part.replace("\\,", ",") for text in data for part in _COMMA.split(text)]
        if len(texts) > self.limit:
            self.fail("too_many", limit=self.limit, count=len(texts))
        return list(dict.fromkeys(super().to_internal_value(texts)))


class NullField(serializers.BooleanField):
    """Whoever has no value, or whoever has one."""

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.path = path


class FacetField(serializers.Field[Facet, str, Any, Any]):
    """A declared facet: ``region``, or ``region,platform`` for one of several columns."""

    default_error_messages = {"invalid": _("“{value}” is not a facet. There are: {facets}.")}

    def choices(self) -> dict[str, Facet]:
        """The facets by the parameters that they are filtered by."""
        names = {path: name for name, path in self.context["view"].get_filters().items()}
        facets = (facet for facet in _index(self).faceting.all if names.keys() >= set(facet.paths))
        return {",".join(names[path] for path in facet.paths): facet for facet in facets}

    def to_internal_value(self, data: str) -> Facet:
        choices = self.choices()
        wanted = sorted(data.split(","))
        facet = next((facet for name, facet in choices.items() if sorted(name.split(",")) == wanted), None)
        if facet is None:
            self.fail("invalid", value=data, facets="; ".join(choices))
        return facet


# Query strings


class RankingParameters(serializers.Serializer[Any]):
    """The filters, which every path takes. ``context["view"]`` has the index and the limits."""

    default_error_messages = {
        "repeated": _("Give this parameter once."),
        "unknown_filter": _("There is no such filter."),
        "no_group": _("No group can be given here."),
    }

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields, filters = self.get_own_fields(), self.get_filters()
        taken = {f"{name}{kind}" for name in (GROUP, *self.context["view"].get_filters()) for kind in _KINDS}
        if clash := taken & (fields.keys() | self._declared_fields):
            raise ImproperlyConfigured(
                f"The facet {clash.pop()!r} has the name of a parameter: "
                f"get_filters() of {type(self.context['view']).__name__} must give it another one."
            )
        return {**fields, **filters}

    def get_own_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The fields that are no filters: of those that may be left out, the ones that the request gives."""
        return copy.deepcopy(
            {
                name: field
                for name, field in self._declared_fields.items()
                if field.required or field.default is not empty or self.is_wanted(name)
            }
        )

    def is_wanted(self, name: str) -> bool:
        """Whether a field that may be left out is there: only where the request gives it, as to make one costs more
        than to read it. Where there is no request, as for a schema, all are."""
        given = getattr(self, "initial_data", None)
        return given is None or name in given

    def get_filters(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The fields that narrow the ranking, and those that this view refuses."""
        view = self.context["view"]
        fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {}
        for name, path in view.get_filters().items():
            if self.is_wanted(name):
                fields[name] = ValuesField(
                    path,
                    child=ValueField(path),
                    help_text=_("Only those with this value, or with one of several, separated by commas."),
                )
            if self.is_wanted(f"{name}__not"):
                fields[f"{name}__not"] = ValuesField(
                    path,
                    child=ValueField(path),
                    excluded=True,
                    help_text=_("None with this value, or with one of several, separated by commas."),
                )
            if self.is_wanted(f"{name}__isnull"):
                fields[f"{name}__isnull"] = NullField(
                    path, help_text=_("Only those who have no value (true), or who have one (false).")
                )
        for name in filter(self.is_wanted, (GROUP, f"{GROUP}__not")):
            if not view.allow_groups:
                fields.setdefault(name, RefusedField(self.error_messages["no_group"]))
            elif name == GROUP:
                fields[name] = ValuesField(
                    GROUP,
                    child=serializers.CharField(max_length=200),
                    help_text=_("Only members of this group, or of one of several."),
                )
            else:
                fields[name] = ValuesField(
                    GROUP,
                    child=serializers.CharField(max_length=200),
                    excluded=True,
                    help_text=_("No members of this group, nor of one of several."),
                )
        return fields

    def to_internal_value(self, data: QueryDict) -> dict[str, Any]:
        given: dict[str, Any] = {}
        refused = {name: [self.error_messages["unknown_filter"]] for name in self._unknown_filters(data)}
        for name, field in self.fields.items():
            values = data.getlist(name)
            if isinstance(field, RepeatedField):
                given |= {name: values} if values else {}
            elif len(values) > 1:
                # Which of them counts is not left to guessing: proxies and frameworks differ in it.
                refused[name] = [self.error_messages["repeated"]]
            elif values:
                given[name] = values[0]
        view = self.context["view"]
        for name in get_page_parameters(view.paginator) if view.action == "list" else ():
            if len(data.getlist(name)) > 1:
                refused[name] = [self.error_messages["repeated"]]
        if refused:
            raise serializers.ValidationError(refused, code="invalid")
        # A plain dictionary: out of a QueryDict, an empty parameter would count as not given.
        parameters: dict[str, Any] = super().to_internal_value(given)
        return parameters

    def _unknown_filters(self, data: QueryDict) -> Iterable[str]:
        filters = {GROUP, *self.context["view"].get_filters()}
        stems = {name.split(LOOKUP_SEP)[0] for name in filters}
        for name in data:
            stem, *lookups = name.split(LOOKUP_SEP)
            if lookups and stem in stems and name not in self.fields:
                yield name

    def narrow(self, ranking: Ranking) -> Ranking:
        """The part of ``ranking`` that is asked for: all filters hold. 400 for what no facet can tell."""
        wanted: dict[str, list[Any]] = {}
        unwanted: list[tuple[str, list[Any]]] = []
        names: dict[str, str] = {}
        for name, value in self.validated_data.items():
            field = self.fields[name]
            match field:
                case ValuesField(excluded=False):
                    wanted[field.path] = [one for one in value if one in wanted.get(field.path, value)]
                case ValuesField():
                    unwanted.append((field.path, value))
                case NullField() if value:
                    wanted[field.path] = [one for one in wanted.get(field.path, [None]) if one is None]
                case NullField():
                    unwanted.append((field.path, [None]))
                case _:
                    continue
            names[field.path] = name
        try:
            # Wanted ones at once, for a composite facet to be found; unwanted ones one by one, for none of them to do.
            if wanted:
                ranking = ranking.filter(**{f"{path}__in": values for path, values in wanted.items()})
            for path, values in unwanted:
                ranking = ranking.exclude(**{f"{path}__in": values})
        except ValueError as error:
            path, _separator, message = str(error).partition(": ")
            name = names.get(path, api_settings.NON_FIELD_ERRORS_KEY)
            raise serializers.ValidationError({name: [message or str(error)]}, code="invalid") from error
        return ranking

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything but the filters, as it was given."""
        filters = (ValuesField, NullField)
        given = self.validated_data.items()
        return {name: value for name, value in given if not isinstance(self.fields[name], filters)}


class NumberedParameters(RankingParameters):
    """With ``n``, which ``ZRANK["MAX_N"]`` limits."""

    def get_own_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        ceiling = get_settings().max_n
        n = serializers.IntegerField(
            required=False, min_value=1, max_value=ceiling, help_text=_("How many members.")
        )
        return {"n": n, **super().get_own_fields()}


class AroundParameters(NumberedParameters):
    """The query string of ``GET /leaderboard/<pk>/around/``."""


class CountsParameters(NumberedParameters):
    """The query string of ``GET /leaderboard/counts/``."""

    facet = FacetField(help_text=_("What to count by: a facet, or the parts of one, separated by commas."))


class RecommendationParameters(NumberedParameters):
    """The query string of ``GET /recommendations/``."""

    band = BandField(
        required=False,
        help_text=_("How far a score may lie from mine: one distance, or two as “below,above”."),
    )
    ranks = RanksField(
        required=False,
        help_text=_("How far a rank may lie from mine, in place of a band: a number, or “below,above”."),
    )
    widen = RepeatedField(
        child=BandField(),
        required=False,
        max_length=10,
        help_text=_("A wider band for when the band holds too few. Once for every step, in their order."),
    )
    exclude = MembersField(required=False, help_text=_("Ids of members to leave out, separated by commas."))
    seed = serializers.IntegerField(required=False, help_text=_("The same seed draws the same members."))
    member = MemberField(required=False, help_text=_("The id of the member to ask as. Default: mine."))

    default_error_messages = {
        "no_seed": _("No seed can be given here."),
        "band_or_ranks": _("Give a band or ranks, not both."),
    }

    def get_own_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_own_fields()
        if "seed" in fields and not self.context["view"].allow_seed:
            fields["seed"] = RefusedField(self.error_messages["no_seed"])
        if "widen" in fields and "ranks" in getattr(self, "initial_data", ()):
            widen = fields["widen"]
            fields["widen"] = RepeatedField(
                child=RanksField(), required=False, max_length=10, help_text=widen.help_text
            )
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "ranks" in attrs:
            if "band" in attrs:
                raise serializers.ValidationError({"ranks": [self.error_messages["band_or_ranks"]]})
            return attrs
        if "band" not in attrs and self.context["view"].get_index().get_band() is None:
            raise serializers.ValidationError({"band": [self.error_messages["required"]]}, code="required")
        return attrs
