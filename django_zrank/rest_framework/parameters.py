"""Parameters of a query string. An instance is made once for an index and its limits, and serves all requests.

``read()`` parses the texts that were given, or raises ``ValidationError``; ``get_schema()`` is the JSON schema of the
same texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from django.utils.translation import gettext_lazy as _
from rest_framework.serializers import IntegerField, ValidationError

from ..index import RankIndex
from .schemas import Schema, key_schema

__all__ = [
    "FlagParameter",
    "MemberParameter",
    "MembersParameter",
    "NumberParameter",
    "PageParameter",
    "Parameter",
    "RefusedParameter",
    "values_of",
]

Text = Any  # str, or a lazy translation

_COMMA: Final = re.compile(r"(?<!\\),")
"""A comma between two values; one within a value has a backslash before it."""


class Parameter:
    """One parameter: parses its texts, and describes them."""

    repeatable: ClassVar[bool] = False
    """True if it may be given several times."""

    explode: ClassVar[bool | None] = None
    """In schemas: True to repeat it, False to separate values by commas. Either works."""

    required = False
    hidden = False
    """True to leave it out of schemas."""

    def __init__(self, help_text: Text = "") -> None:
        self.help_text = help_text

    def read(self, texts: Sequence[str]) -> Any:
        """Parse what was given. ``texts`` has one item; of a repeatable parameter it may have more."""
        return self.read_one(texts[0])

    def read_one(self, text: str) -> Any:
        raise NotImplementedError

    def get_schema(self) -> Schema:
        """Return the JSON schema of what may be given."""
        raise NotImplementedError


class RefusedParameter(Parameter):
    """A parameter that this view doesn't allow: the 400 says that, and not that it is unknown."""

    hidden = True

    def read(self, texts: Sequence[str]) -> Any:
        raise ValidationError([self.help_text], code="not_allowed")


class NumberParameter(Parameter):
    """A whole number."""

    def __init__(self, lowest: int | None = None, highest: int | None = None, help_text: Text = "") -> None:
        super().__init__(help_text)
        self.lowest, self.highest = lowest, highest
        self.field = IntegerField(min_value=lowest, max_value=highest)

    def read_one(self, text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,1000}", text):  # the field reads more: " 7", "7.0", "1_000", "٣"
            self.field.fail("invalid")
        number: int = self.field.run_validation(text)
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
    """The number of a page, which the paginator parses and describes."""

    hidden = True

    def read_one(self, text: str) -> str:
        if not text:  # Django REST framework would serve the first page
            raise ValidationError([_("A valid integer is required.")], code="invalid")
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


def values_of(texts: Sequence[str]) -> list[str]:
    """Return the values of a parameter that takes several: separated by commas, or the parameter repeated. A comma
    within a value is written ``\\,``."""
    return [part.replace("\\,", ",") for text in texts for part in _COMMA.split(text)]


class MembersParameter(MemberParameter):
    """Members, by primary key, as :func:`values_of` separates them."""

    repeatable = True
    explode = False  # Django takes 1,000 parameters a request

    def __init__(self, index: RankIndex, limit: int, help_text: Text = "") -> None:
        super().__init__(index, help_text)
        self.limit = limit

    def read(self, texts: Sequence[str]) -> list[Any]:
        pks = [pk.strip() for pk in values_of(texts)]
        if len(pks) > self.limit:
            message = _("At most {limit} ids can be given, not {count}.")
            raise ValidationError([message.format(limit=self.limit, count=len(pks))], code="too_many")
        return [self.read_one(pk) for pk in pks]

    def get_schema(self) -> Schema:
        items = key_schema(self.index)
        if items == {"type": "string"}:
            items["pattern"] = r"^(?:\\,|[^,\u0000])*[^\s,\\\u0000](?:\\,|[^,\\\u0000])*$"
        return {"type": "array", "items": items, "minItems": 1, "maxItems": self.limit}
