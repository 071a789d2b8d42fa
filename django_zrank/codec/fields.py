"""The fields of a model: those on a lookup path, the kind of their values, and the canonical text of a value in a key
column: in Redis, in marks, and however a database casts it to text.

PostgreSQL casts the address ``10.0.0.1`` to ``10.0.0.1/32`` and true to ``true``; SQLite holds a UUID as 32 digits.
A value, or any of these texts, is parsed, and the ``str()`` of the result is the spelling. Types whose text depends on
the database or the session (dates, times, decimals, floats, bytes) have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address
from numbers import Integral, Number
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.core.exceptions import FieldError, ImproperlyConfigured, ValidationError
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.utils.ipv6 import clean_ipv6_address

from .units import EXACT, Big, Boolean, Day, Fixed, Float, Kind, Moment, Span

__all__ = [
    "SUPPORTED",
    "Spelling",
    "find_model",
    "follow",
    "is_unique",
    "kind_of",
    "spelling_of",
    "value_field",
]


def find_model(declared: Any, module: str) -> type[models.Model] | None:
    """Return the model that an index in ``module`` declares: a class, or a name as in foreign keys, ``players.Player``
    or ``Player``. None if it has no table. Django must have loaded the models."""
    if isinstance(declared, str):
        own = apps.get_containing_app_config(module)
        label = declared if "." in declared or own is None else f"{own.label}.{declared}"
        try:
            declared = apps.get_model(label)
        except (LookupError, ValueError):
            return None
    is_model = isinstance(declared, type) and issubclass(declared, models.Model)
    return declared if is_model and not (declared._meta.abstract or declared._meta.swapped) else None


def kind_of(field: models.Field[Any, Any]) -> Kind:
    """Return the kind of a model field's values. Raises ``FieldError`` if they can't be ranked."""
    match field:
        case models.GeneratedField():
            return kind_of(field.output_field)  # type: ignore[arg-type]
        case models.ForeignObject():
            return kind_of(field.target_field)
        case models.BooleanField():
            return Boolean()
        case models.DecimalField():
            digits = field.max_digits
            return Fixed(field.decimal_places or 0, is_wide=digits is None or 10**digits > EXACT)
        case models.DateTimeField():  # before DateField, its base class
            return Moment()
        case models.DateField():
            return Day()
        case models.DurationField():
            return Span()
        case models.FloatField():
            return Float()
        case models.BigIntegerField():
            return Big()
        case models.IntegerField():
            return Kind()
        case models.CharField() | models.TextField():
            raise FieldError(f"{field} is text, which can't be ranked; the primary key always breaks ties")
    raise FieldError(f"{field} is a {type(field).__name__}, which can't be ranked")


def value_field(field: Any) -> Any:
    """Return the field that defines a column's values: the target key of a relation, the output field of a generated
    field."""
    while field.is_relation:
        field = getattr(field, "target_field", None) or field.related_model._meta.pk
    return field.output_field if isinstance(field, models.GeneratedField) else field


def follow(model: type[models.Model], path: str) -> Iterator[Any]:
    """Yield each field on a lookup path such as ``profile__level``. Raises ``FieldDoesNotExist``."""
    options: Any = model._meta
    for name in path.split(LOOKUP_SEP):
        if options is None:
            raise FieldError(f"{path}: {name} follows a field that is not a relation")
        field: Any = options.pk if name == "pk" else options.get_field(name)
        yield field
        options = field.related_model._meta if field.is_relation and field.related_model else None


@cache
def is_unique(model: type[models.Model], path: str) -> bool:
    """Return True if at most one row of ``model`` has a certain value at a lookup path."""
    return all(field.one_to_one or getattr(field, "unique", False) for field in follow(model, path))


_INTEGER: Final = re.compile(r"-?[0-9]+")

SUPPORTED: Final = "integers, text, UUIDs, IP addresses and booleans"


@dataclass(frozen=True)
class Spelling:
    """The spelling of the values of one field. ``str(parse(value))`` is the text of a value."""

    field: Any
    """The field that holds the values: for a relation, its target key."""

    parse: Callable[[Any], Any]
    """A function from a value, or its text as any database casts it, to the value as Django reads it. It raises
    ``ValueError``."""

    @property
    def exact(self) -> type | None:
        """The type whose values need no parsing, if there is one: ``str(value)`` is their text."""
        return _EXACT.get(self.parse)

    @property
    def is_text(self) -> bool:
        return self.parse is _text

    def parse_input(self, given: Any) -> Any:
        """Parse a value that a caller gives. Raises ``ValueError``."""
        # Fields turn 7.5 into 7, and True into 1.
        if isinstance(given, bool) and self.parse is not _boolean:
            raise ValueError(f"{given!r} is a bool")
        # int() takes 1_0, digits of other scripts, and spaces.
        if isinstance(given, str) and self.exact is int and not _INTEGER.fullmatch(given):
            raise ValueError(f"{given!r} is not a whole number")
        try:
            value = self.field.to_python(given)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None
        except (OverflowError, TypeError) as error:
            raise ValueError(str(error)) from None
        if value is None or (
            isinstance(given, Number) and not isinstance(given, Integral) and value != given
        ):
            raise ValueError(f"{given!r} is not a value of {self.field}")
        return self.parse(value)


@cache
def spelling_of(field: Any) -> Spelling:
    """Return the spelling of the values of ``field``. Raises ``ImproperlyConfigured`` if there is none."""
    field = value_field(field)
    make = _PARSERS.get(field.get_internal_type())
    if make is None:
        raise ImproperlyConfigured(
            f"the text of a {type(field).__name__} is not the same in Python and in every database"
        )
    for name in ("from_db_value", "get_prep_value", "get_db_prep_value"):
        maker = next((cls for cls in type(field).__mro__ if name in vars(cls)), None)
        if maker is not None and not maker.__module__.startswith("django."):
            raise ImproperlyConfigured(
                f"{type(field).__name__}.{name}() converts its values, so their text in the database differs"
            )
    return Spelling(field, make(field))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    if not value.isascii():
        value.encode()  # raises for lone surrogates, which neither databases nor Redis accept
    return value if type(value) is str else str.__str__(value)  # the value of an enum


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))


_EXACT: Final[dict[Any, type]] = {int: int, _uuid: UUID}

_BOOLEANS: Final = {
    "true": True, "t": True, "1": True,
    "false": False, "f": False, "0": False,
}  # fmt: skip


def _boolean(value: Any) -> bool:
    try:
        return _BOOLEANS[str(value).lower()]
    except KeyError:
        raise ValueError(f"{value!r} is neither true nor false") from None


def _address(field: Any) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        address, slash, bits = str(value).partition("/")
        # PostgreSQL's inet ends with the length of the prefix; a shorter one is a network.
        if slash and bits != ("128" if ":" in address else "32"):
            raise ValueError(f"{value!r} is a network, not an address")
        if ":" not in address:
            return str(IPv4Address(address))
        try:
            return clean_ipv6_address(address, field.unpack_ipv4)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None

    return parse


_INTEGERS: Final = (
    "AutoField", "BigAutoField", "SmallAutoField",
    "IntegerField", "BigIntegerField", "SmallIntegerField",
    "PositiveIntegerField", "PositiveBigIntegerField", "PositiveSmallIntegerField",
)  # fmt: skip

_PARSERS: Final[dict[str, Callable[[Any], Callable[[Any], Any]]]] = {
    **dict.fromkeys(_INTEGERS, lambda field: int),
    **dict.fromkeys(("CharField", "FilePathField", "SlugField", "TextField"), lambda field: _text),
    "BooleanField": lambda field: _boolean,
    "GenericIPAddressField": _address,
    "UUIDField": lambda field: _uuid,
}
"""By the type of the column."""
