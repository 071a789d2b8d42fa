"""One grammar for the values that clients send as text, in paths, query strings and bodies.

Python and Django read more than that: ``int()`` takes ``" 7"``, ``1_000`` and ``٣``, and so do ``Decimal()``,
``UUID()`` and the parsers of dates and durations. A value has the same spellings wherever it is given. Each
:class:`~django_zrank.codec.kinds.Kind` says which of these its values have.
"""

from __future__ import annotations

import re
from typing import Final

from django.utils.translation import gettext_lazy as _

__all__ = ["DATE", "NUMBER", "PRINTABLE", "REAL", "SPAN", "TIME", "WHOLE", "spelled"]

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

DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,12})?)?"


def spelled(pattern: str, text: str) -> str:
    """Return ``text``. Raises ``ValueError`` if it isn't spelled as the pattern says."""
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(_("write a number such as 10 or 2.5"))
    return text
