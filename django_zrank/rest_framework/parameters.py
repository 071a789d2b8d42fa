"""Parameters of a query string. Each knows its index and its limits, and serves every request.

``read()`` takes the texts that were given and returns a value, or raises ``ValidationError``; ``get_schema()`` is the
JSON schema of the same texts, so the two stand side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.duration import duration_string
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import ValidationError

from ..codec.units import Distance
from ..index import Band, RankIndex
from .schemas import NUMBER, Schema, band_pattern, key_schema

__all__ = [
    "BandParameter",
    "FlagParameter",
    "MemberParameter",
    "MembersParameter",
    "NumberParameter",
    "PageParameter",
    "Parameter",
    "RanksParameter",
    "RefusedParameter",
    "StepsParameter",
    "show_band",
    "sides",
]

Text = Any  # A text, or one translated when it is shown


class Parameter:
    """One parameter: how to read it, and how to describe it."""

    repeatable: ClassVar[bool] = False
    """Whether it may be given several times."""

    explode: ClassVar[bool | None] = None
    """Whether schemas tell to repeat it (True), or to separate values by commas (False). Either works."""

    required = False
    hidden = False
    """Whether it is left out of schemas: it is known only to be refused."""

    def __init__(self, help_text: Text = "") -> None:
        self.help_text = help_text

    def read(self, texts: Sequence[str]) -> Any:
        """The value. ``texts`` has one item, or more of a repeatable parameter."""
        return self.read_one(texts[0])

    def read_one(self, text: str) -> Any:
        """The value of one text."""
        raise NotImplementedError

    def get_schema(self) -> Schema:
        """The JSON schema of what may be given."""
        raise NotImplementedError


class RefusedParameter(Parameter):
    """A parameter that this view doesn't take: the 400 says so, rather than that there is none of that name."""

    hidden = True

    def read(self, texts: Sequence[str]) -> Any:
        raise ValidationError([self.help_text], code="not_allowed")


class NumberParameter(Parameter):
    """A whole number."""

    def __init__(self, lowest: int | None = None, highest: int | None = None, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.lowest, self.highest = lowest, highest

    def read_one(self, text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,1000}", text):
            raise ValidationError([_("A valid integer is required.")], code="invalid")
        number = int(text)
        if self.highest is not None and number > self.highest:
            message = _("Ensure this value is less than or equal to {max_value}.")
            raise ValidationError([message.format(max_value=self.highest)], code="max_value")
        if self.lowest is not None and number < self.lowest:
            message = _("Ensure this value is greater than or equal to {min_value}.")
            raise ValidationError([message.format(min_value=self.lowest)], code="min_value")
        return number

    def get_schema(self) -> Schema:
        bounds = {"minimum": self.lowest, "maximum": self.highest}
        return {"type": "integer", **{key: bound for key, bound in bounds.items() if bound is not None}}


class FlagParameter(Parameter):
    """``true`` or ``false``."""

    def read_one(self, text: str) -> bool:
        flag = {"true": True, "false": False}.get(text.lower())
        if flag is None:
            raise ValidationError([_("Must be a valid boolean.")], code="invalid")
        return flag

    def get_schema(self) -> Schema:
        return {"type": "boolean"}


class PageParameter(Parameter):
    """The number of a page, which the paginator reads and describes: 404 where there is none."""

    hidden = True

    def read_one(self, text: str) -> str:
        return text


# Members


class MemberParameter(Parameter):
    """One member, by primary key."""

    def __init__(self, index: RankIndex, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.index = index

    def read_one(self, text: str) -> Any:
        try:
            if not text:
                raise ValueError("empty")
            return self.index.parse_pk(text)
        except (ArithmeticError, ValueError):
            raise ValidationError([_("“{value}” is not an id.").format(value=text)], code="invalid") from None

    def get_schema(self) -> Schema:
        schema = key_schema(self.index)
        return {**schema, "pattern": r"^[^\u0000]+$"} if schema == {"type": "string"} else schema


class MembersParameter(MemberParameter):
    """Members, by primary keys: separated by commas, in one parameter or in several."""

    repeatable = True
    explode = False  # Django takes 1,000 parameters a request

    def __init__(self, index: RankIndex, limit: int, help_text: Text = "") -> None:
        super().__init__(index, help_text)
        self.limit = limit

    def read(self, texts: Sequence[str]) -> list[Any]:
        pks = [pk.strip() for text in texts for pk in text.split(",")]
        if len(pks) > self.limit:
            message = _("At most {limit} ids can be given, not {count}.")
            raise ValidationError([message.format(limit=self.limit, count=len(pks))], code="too_many")
        return [self.read_one(pk) for pk in pks]

    def get_schema(self) -> Schema:
        items = key_schema(self.index)
        if items == {"type": "string"}:
            items["pattern"] = r"^[^,\u0000]*[^\s,\u0000][^,\u0000]*$"
        return {"type": "array", "items": items, "minItems": 1, "maxItems": self.limit}


# Bands


class BandParameter(Parameter):
    """A band: ``10``, or ``50,100`` for below and above, each in the unit of the score.

    A side wider than the ``ceiling`` is cut to it, as a page longer than ``max_page_size`` is.
    """

    def __init__(self, index: RankIndex, ceiling: Band | None = None, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.index = index
        distance = index.ordering.first.kind.distance
        try:
            self.ceiling = None if ceiling is None else [(one, distance(one)) for one in sides(ceiling)]
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"max_band of {index!r} is {ceiling!r}: {error}") from error

    def read_one(self, text: str) -> Band:
        try:
            below, *above = [self._distance(one) for one in _at_most_two(text)]
        except (ArithmeticError, ValueError) as error:
            message = _("“{value}” is not a band: {reason}.").format(value=text, reason=error)
            raise ValidationError([message], code="invalid") from None
        band = (below, above[0] if above else below)
        if self.ceiling is not None:
            distance = self.index.ordering.first.kind.distance
            cut = tuple(
                highest if distance(one) > units else one
                for one, (highest, units) in zip(band, self.ceiling, strict=True)
            )
            band = (cut[0], cut[1])
        return band

    def _distance(self, text: str) -> Distance:
        distance = self.index.parse_band(text)
        if not isinstance(distance, timedelta) and not re.fullmatch(NUMBER, text):
            raise ValueError(_("write a number such as 10 or 2.5"))
        return distance

    def get_schema(self) -> Schema:
        side = band_pattern(self.index)
        example = "50,100" if side == NUMBER else "P3D,P7D"
        return {"type": "string", "pattern": f"^{side}(?:,{side})?$", "example": example}


class RanksParameter(Parameter):
    """A window of ranks: ``50``, or ``50,100`` for behind me and before me, as in a band. Fractions are cut off."""

    def __init__(self, ceiling: int | tuple[int, int] | None = None, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.ceiling = None if ceiling is None else sides(ceiling)

    def read_one(self, text: str) -> tuple[int, int]:
        try:
            numbers = _at_most_two(text)
            if not all(re.fullmatch(NUMBER, number) for number in numbers):
                raise ValueError("no number")
        except ValueError:
            message = _("“{value}” is not a number of ranks, or two as “below,above”.")
            raise ValidationError([message.format(value=text)], code="invalid") from None
        below, *above = [min(int(Decimal(number)), _MOST_RANKS) for number in numbers]
        window = (below, above[0] if above else below)
        if self.ceiling is not None:
            window = (min(window[0], self.ceiling[0]), min(window[1], self.ceiling[1]))
        return window

    def get_schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NUMBER}(?:,{NUMBER})?$", "example": "50"}


class StepsParameter(Parameter):
    """Bands to try in turn, once for every step; windows of ranks where the request asks by ranks."""

    repeatable = True
    limit = 10

    def __init__(self, step: Parameter, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.step = step

    def read(self, texts: Sequence[str]) -> list[Any]:
        if len(texts) > self.limit:
            message = _("Ensure this field has no more than {max_length} elements.")
            raise ValidationError([message.format(max_length=self.limit)], code="max_length")
        return [self.step.read_one(text) for text in texts]

    def get_schema(self) -> Schema:
        return {"type": "array", "items": self.step.get_schema(), "minItems": 1, "maxItems": self.limit}


_MOST_RANKS: Final = 10**9
"""More than there are."""


def _at_most_two(text: str) -> list[str]:
    parts = text.split(",")
    if len(parts) > 2:
        raise ValueError(_("write one distance, or two as “below,above”"))
    return parts


def sides(band: Any) -> tuple[Any, Any]:
    """The two sides of a band: below and above."""
    below, above = band if isinstance(band, (tuple, list)) else (band, band)
    return below, above


def show_band(band: Any) -> list[Any]:
    """[below, above], fit to be asked for again: seconds are not, since a date's band counts in days."""
    return [duration_string(one) if isinstance(one, timedelta) else one for one in sides(band)]
