"""Serializers of query strings.

Unknown parameters are refused: if a misspelt filter were ignored, the response would show everybody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from django.core.exceptions import ImproperlyConfigured
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.settings import api_settings

from ..codec.filters import GROUP, MOST_GROUPS
from ..ranking import Ranking
from .fields import (
    BandField,
    FacetField,
    FlagField,
    GroupField,
    IntegerField,
    MemberField,
    MembersField,
    PageField,
    ParsedFilter,
    PointField,
    QueryField,
    RanksField,
    StepsField,
    ValueField,
    ValuesField,
)

__all__ = ["AroundQuery", "CountsQuery", "ListQuery", "QuerySerializer", "RecommendationQuery", "narrow"]


logger = logging.getLogger("django_zrank")


class QuerySerializer(serializers.Serializer[Any]):
    """The query string of an action: filters, and in subclasses further parameters.

    Its context is what the view allows. One instance serves all requests of the same context.
    """

    switches: ClassVar[Mapping[str, tuple[Sequence[str], Any]]] = {
        "allow_groups": ((GROUP, f"{GROUP}__not"), _("No group can be given here.")),
    }
    """Attributes of the view that allow parameters, the parameters, and the message of a 400 if they aren't allowed."""

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, **context: Any) -> Self:
        """Return the serializer for what a view allows."""
        return cls(context=context)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.refused: dict[str, Any] = {
            name: message
            for switch, (names, message) in self.switches.items()
            for name in names
            if not self.context[switch]
        }
        self.needed: list[tuple[str, ...]] = [
            (name,) for name, field in self.fields.items() if field.required
        ]
        """Groups of parameters: a request must have one of each."""

    def get_fields(self) -> dict[str, Any]:
        own, filters = {**self.get_parameters(), **self.get_groups()}, self.get_filters()
        if clash := filters.keys() & {*own, *self.context["others"]}:
            raise ImproperlyConfigured(
                f"The filter {min(clash)!r} has the name of another parameter: get_filters() of the view must "
                "give it another one."
            )
        return {name: field for name, field in {**own, **filters}.items() if name not in self.refused}

    def get_parameters(self) -> dict[str, QueryField]:
        """Return the fields other than filters, by name."""
        return {}

    def get_groups(self) -> dict[str, QueryField]:
        """Return the fields that filter by groups, by name."""
        some = _("Only members of this group, or of one of several.")
        none = _("No members of this group, or of any of several.")
        return {
            GROUP: ValuesField(GroupField(), GROUP, max_length=MOST_GROUPS, help_text=some),
            f"{GROUP}__not": ValuesField(
                GroupField(), GROUP, negated=True, max_length=MOST_GROUPS, help_text=none
            ),
        }

    def get_filters(self) -> dict[str, QueryField]:
        """Return the fields that filter by facets, by name."""
        some = _("Only members with this value, or any of several, separated by commas.")
        none = _("Only members without this value, or any of several, separated by commas.")
        null = _("Only members without a value (true), or with one (false).")
        empty = _("Only members whose value is empty text (true), or is not (false).")
        found: dict[str, QueryField] = {}
        for name, path in self.context["filters"]:
            value = ValueField(self.context["index"], path)
            found[name] = ValuesField(value, path, help_text=some)
            found[f"{name}__not"] = ValuesField(value, path, negated=True, help_text=none)
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
                if len(texts) > 1 and not field.repeatable:
                    # Proxies and frameworks differ in which of them counts.
                    raise serializers.ValidationError([_("Give this parameter once.")], code="repeated")
                value = field.run_validation(texts if field.repeatable else texts[0])
                (filters if isinstance(value, ParsedFilter) else values)[name] = value
            except serializers.ValidationError as error:
                errors[name] = error.detail
        for names in self.needed:
            if not any(name in data for name in names):
                errors[names[0]] = [_("This field is required.")]
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
        by_lower = {one.lower(): one for one in {*self.fields, *others}}
        # Comparing long names would cost time.
        close = get_close_matches(name.lower(), by_lower) if len(name) <= 50 and len(data) <= 20 else []
        message: Any = _("There is no such parameter.")
        if close:
            similar = ", ".join(by_lower[one] for one in close)
            message = _("There is no such parameter. Did you mean {names}?").format(names=similar)
        raise serializers.ValidationError([message], code="unknown")


_MOST_MEMBERS: Final = 100
"""The most members that are looked up at once, by one round trip."""


class ListQuery(QuerySerializer):
    """The query string of a leaderboard. Pages are parsed by the paginator; here they only have to be numbers."""

    def get_parameters(self) -> dict[str, QueryField]:
        texts = {1: _("The number of results on a page."), 0: _("The number of results to skip.")}
        ids = _("Only these members, as they rank among all: ids, separated by commas.")
        return {
            name: PageField() if lowest is None else IntegerField(min_value=lowest, help_text=texts[lowest])
            for name, lowest in self.context["pages"]
        } | {"pk": MembersField(MemberField(self.context["index"]), _MOST_MEMBERS, help_text=ids)}


class AroundQuery(QuerySerializer):
    """The query string of ``GET /leaderboard/<pk>/around/``."""

    def get_parameters(self) -> dict[str, QueryField]:
        return {"n": self.get_n(_("The number of members."))}

    def get_n(self, help_text: Any) -> IntegerField:
        return IntegerField(min_value=1, max_value=self.context["max_n"], help_text=help_text)


class CountsQuery(AroundQuery):
    """The query string of ``GET /leaderboard/counts/``."""

    def get_parameters(self) -> dict[str, QueryField]:
        help_text = _("What to count by: a facet, or the parts of one, separated by commas.")
        filters = dict(self.context["filters"])
        return {
            "n": self.get_n(_("The number of values.")),
            "facet": FacetField(self.context["index"], filters, help_text=help_text, required=True),
        }


class RecommendationQuery(AroundQuery):
    """The query string of ``GET /recommendations/``."""

    switches: ClassVar[Mapping[str, tuple[Sequence[str], Any]]] = {
        **QuerySerializer.switches,
        "allow_band": (("band", "ranks", "widen"), _("No band can be given here.")),
        "allow_seed": (("seed",), _("No seed can be given here.")),
        "allow_near": (("near",), _("No score can be given here.")),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.context["index"].get_band() is None:
            self.needed.append(("band", "ranks"))

    def get_parameters(self) -> dict[str, QueryField]:
        context, index = self.context, self.context["index"]
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
        self.widen_ranks = StepsField(ranks, max_length=10)
        return {
            **super().get_parameters(),
            "band": band,
            "ranks": ranks,
            "widen": StepsField(band, max_length=10, help_text=steps),
            "exclude": MembersField(MemberField(index), context["max_excluded"], help_text=ids),
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
    except ValueError as error:
        logger.warning("%s", error)  # Names what to declare, which is not for clients
        name = names.get(str(error).partition(": ")[0], api_settings.NON_FIELD_ERRORS_KEY)
        message = _("Members can't be filtered by this alone.")
        raise serializers.ValidationError({name: [message]}, code="invalid") from error
    return ranking
