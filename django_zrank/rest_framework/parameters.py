"""What a request for recommendations may ask for, read out of the query string.

Every refusal is a 400 whose body names the parameter. A parameter that isn't known is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.http import QueryDict
from django.utils.duration import duration_string
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..conf import get_settings
from ..index import Band, RankIndex
from ..ordering import Distance

__all__ = ["BandField", "MemberField", "MembersField", "RecommendationParameters", "RepeatedField"]


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


class RecommendationParameters(serializers.Serializer[Any]):
    """The query string of ``GET /recommendations/``. ``context["view"]`` has the index and the limits."""

    n = serializers.IntegerField(required=False, min_value=1, help_text=_("How many members."))
    band = BandField(
        required=False,
        help_text=_("How far a score may lie from mine: one distance, or two as “below,above”."),
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

    default_error_messages = {"repeated": _("Give this parameter once.")}

    def to_internal_value(self, data: QueryDict) -> dict[str, Any]:
        given: dict[str, Any] = {}
        repeated: dict[str, Any] = {}
        for name, field in self.fields.items():
            values = data.getlist(name)
            if isinstance(field, RepeatedField):
                given |= {name: values} if values else {}
            elif len(values) > 1:
                # Which of them counts is not left to guessing: proxies and frameworks differ in it.
                repeated[name] = [self.error_messages["repeated"]]
            elif values:
                given[name] = values[0]
        if repeated:
            raise serializers.ValidationError(repeated, code="repeated")
        # A plain dictionary: out of a QueryDict, an empty parameter would count as not given.
        parameters: dict[str, Any] = super().to_internal_value(given)
        return parameters

    def validate_n(self, n: int) -> int:
        ceiling = get_settings().max_n
        if n > ceiling:
            message = serializers.IntegerField.default_error_messages["max_value"]
            raise serializers.ValidationError(message.format(max_value=ceiling), code="max_value")
        return n

    def validate_seed(self, seed: int) -> int:
        if not self.context["view"].allow_seed:
            raise serializers.ValidationError(_("No seed can be given here."), code="not_allowed")
        return seed

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        band = self.fields["band"]
        if "band" not in attrs and _index(band).get_band() is None:
            raise serializers.ValidationError({"band": [band.error_messages["required"]]}, code="required")
        return attrs
