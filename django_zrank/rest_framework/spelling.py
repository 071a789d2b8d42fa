"""One grammar for the values that clients send as text, in paths, query strings and bodies.

Python and Django read more than that: ``int()`` takes ``" 7"``, ``1_000`` and ``٣``, and so do ``Decimal()``,
``UUID()`` and the parsers of dates and durations. A value has the same spellings wherever it is given.
"""

from __future__ import annotations

import re
from typing import Any, Final

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..codec.fields import value_field

__all__ = ["NUMBER", "PRINTABLE", "REAL", "SPAN", "WHOLE", "spelled", "spelled_for"]

WHOLE: Final = "-?[0-9]{1,1000}"

REAL: Final = r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?"

NUMBER: Final = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
"""A distance between numbers, as JavaScript and Python write one."""

SPAN: Final = (
    r"(?:P[0-9]{1,5}D|PT[0-9]{1,6}[HMS]|(?:[0-9]{1,5} )?[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]{1,6})?)"
)
"""A distance between times in the notations that the documentation names. Django reads some more."""

PRINTABLE: Final = r"(?!\+)[!-~](?:[ -~]*[!-~])?"
"""ASCII, without spaces at the ends or a plus sign."""

_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,12})?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"

_PATTERNS: Final[dict[Any, str]] = {
    models.BooleanField: "(?i:true|false)",
    models.IntegerField: WHOLE,
    models.FloatField: REAL,
    models.DecimalField: REAL,
    models.DateTimeField: f"{_DATE}(?:[T ]{_TIME})?",
    models.DateField: _DATE,
    models.DurationField: PRINTABLE,
    models.UUIDField: "[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}",
    models.GenericIPAddressField: "[0-9a-fA-F:.]+(?:%[0-9a-zA-Z.-]+)?",
}
"""By the type of the column; the values of all others are text. A datetime is a date, too, so it comes first."""


def spelled(pattern: str, text: str) -> str:
    """Return ``text``. Raises ``ValueError`` if it isn't spelled as the pattern says."""
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(_("write a number such as 10 or 2.5"))
    return text


def spelled_for(field: Any, text: str) -> str:
    """Return ``text`` as Django reads it. Raises ``ValueError`` if it isn't a spelling of a value of a model field."""
    column = value_field(field)
    for kind, pattern in _PATTERNS.items():
        if isinstance(column, kind):
            spelled(pattern, text)
            return text.title() if kind is models.BooleanField else text
    return text
