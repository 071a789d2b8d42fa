"""Parameters for distances between scores, or ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import ValidationError

from ..codec.units import Distance
from ..index import Band, RankIndex
from ..recommendations import sides
from .parameters import Parameter, Text
from .schemas import NUMBER, Schema, band_pattern

__all__ = ["BandParameter", "RanksParameter", "StepsParameter"]


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
            band = [self._distance(one) for one in _two(text)]
        except (ArithmeticError, ValueError) as error:
            message = _("“{value}” is not a band: {reason}.").format(value=text, reason=error)
            raise ValidationError([message], code="invalid") from None
        for at, (highest, units) in enumerate(self.ceiling or ()):
            if self.index.ordering.first.kind.distance(band[at]) > units:
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


class RanksParameter(Parameter):
    """A window of ranks: ``50``, or ``50,100`` for below and above, as in a band. Fractions are cut off."""

    def __init__(self, ceiling: int | tuple[int, int] | None = None, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.ceiling = None if ceiling is None else sides(ceiling)

    def read_one(self, text: str) -> tuple[int, int]:
        try:
            numbers = _two(text)
            if not all(re.fullmatch(NUMBER, number) for number in numbers):
                raise ValueError("no number")
        except ValueError:
            message = _("“{value}” is not a number of ranks, or two as “below,above”.")
            raise ValidationError([message.format(value=text)], code="invalid") from None
        highest = (_MOST_RANKS, _MOST_RANKS) if self.ceiling is None else self.ceiling
        below, above = (min(int(Decimal(one)), most) for one, most in zip(numbers, highest, strict=True))
        return below, above

    def get_schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NUMBER}(?:,{NUMBER})?$", "example": "50"}


class StepsParameter(Parameter):
    """Bands to try in turn, the parameter repeated for every step; windows of ranks if the request has ``ranks``."""

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
"""More than any ranking has."""


def _two(text: str) -> tuple[str, str]:
    parts = text.split(",")
    if not text.strip():
        raise ValueError(_("write a distance, or two as “below,above”"))
    if len(parts) > 2:
        raise ValueError(_("write one distance, or two as “below,above”"))
    return parts[0], parts[-1]
