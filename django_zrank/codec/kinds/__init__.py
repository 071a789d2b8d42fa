"""Kinds of fields: one class for each, and the kind of a model field.

Code elsewhere asks the kind of a field, and doesn't distinguish Django's classes itself. No I/O.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models

from ..fields import value_field
from .kind import Kind
from .numbers import Big, Boolean, Fixed, Float, Integer
from .texts import Address, Identifier, Text
from .times import Day, Moment, Span

__all__ = ["KINDS", "key_kind", "kind_of", "listed", "ranked_kind"]

KINDS: Final[tuple[type[Kind], ...]] = (
    Integer,
    Big,
    Float,
    Fixed,
    Boolean,
    Day,
    Moment,
    Span,
    Text,
    Identifier,
    Address,
)
"""All kinds, in the order in which messages list them."""

_BY_CLASS: Final = {cls: kind for kind in KINDS for cls in kind.fields}


def _kind_of_class(cls: type) -> type[Kind]:
    return next((_BY_CLASS[base] for base in cls.__mro__ if base in _BY_CLASS), Kind)


@cache
def kind_of(field: Any) -> Kind:
    """Return the kind of a model field's values; for a relation, of its target key."""
    field = value_field(field)
    return _kind_of_class(type(field))(field)


def ranked_kind(field: Any) -> Kind:
    """Return the kind of a criterion. Raises ``FieldError`` if it can't be ranked."""
    kind = kind_of(field)
    if kind.is_text:
        raise FieldError(f"{kind.field} is text, which can't be ranked; the primary key always breaks ties")
    if not kind.is_criterion:
        raise FieldError(f"{kind.field} is a {type(kind.field).__name__}, which can't be ranked")
    return kind


@cache
def key_kind(field: Any) -> Kind:
    """Return the kind of a key, whose values have one text: in Redis, in marks, and however a database casts them.

    PostgreSQL casts the address ``10.0.0.1`` to ``10.0.0.1/32`` and true to ``true``; SQLite holds a UUID as 32 digits.
    A value, or any of these texts, is parsed, and the ``str()`` of the result is its text. Types whose text depends on
    the database or the session (dates, times, decimals, floats, bytes) have none: raises ``ImproperlyConfigured``.
    """
    field = value_field(field)
    # By the type of the column: a field of a project may have another class.
    kind = _kind_of_class(getattr(models, field.get_internal_type(), type(None)))
    if not kind.is_key:
        raise ImproperlyConfigured(
            f"the text of a {type(field).__name__} is not the same in Python and in every database"
        )
    for name in ("from_db_value", "get_prep_value", "get_db_prep_value"):
        maker = next((cls for cls in type(field).__mro__ if name in vars(cls)), None)
        if maker is not None and not maker.__module__.startswith("django."):
            raise ImproperlyConfigured(
                f"{type(field).__name__}.{name}() converts its values, so their text in the database differs"
            )
    return kind(field)


def listed(use: str) -> str:
    """Return the names of the kinds that have one use, ``is_criterion``, ``is_facet`` or ``is_key``."""
    *names, last = (kind.called for kind in KINDS if kind.called and getattr(kind, use))
    return f"{', '.join(names)} and {last}"
