"""The base of all kinds of fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from numbers import Number as AnyNumber
from typing import Any, ClassVar, Final

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from ...exceptions import Unrankable
from ..spelling import NUMBER, spelled
from ..units import EXACT, EXACT_LOW, HIGHEST, LOWEST, NUL, Distance, Number, beyond, pack

__all__ = ["VALUE", "Kind", "Schema"]

Schema = dict[str, Any]
"""A JSON schema."""

VALUE: Final = "%(expressions)s"
"""The column, in a template of SQL."""


class OrNull(models.Func):
    """A value, or null if Python doesn't have it."""

    default_alias = "zrank_value"


class Kind:
    """The kind of a field: all that depends on the type of its values, in Redis, in each database, in JSON and in text.

    A kind may be that of criteria, of facets and of keys, or of some of these. A field of none of them has this base.
    """

    fields: ClassVar[tuple[type[models.Field[Any, Any]], ...]] = ()
    """Django's classes. Their subclasses are of this kind, too, unless they have one of their own."""

    called: ClassVar[str] = ""
    """The name in messages."""

    is_criterion: ClassVar[bool] = False
    is_facet: ClassVar[bool] = False
    is_key: ClassVar[bool] = False

    def __init__(self, field: Any = None) -> None:
        self.field = field
        """The field that holds the values: for a relation, its target key."""

    @property
    def declared(self) -> tuple[str, Mapping[str, Any]]:
        """What the fingerprint of an index says of a criterion: if it changes, all indexes with one are rebuilt."""
        return type(self).__name__, {}

    # As a criterion: *units* are the 64-bit integers that values become, *keys* are numbers for values without loss.

    is_wide: bool = False
    """True if units may lie beyond ±2**53, where the score is only the nearest double."""

    is_zoned: ClassVar[bool] = False
    """True if units depend on ``USE_TZ`` and on the time zone of the database."""

    step: ClassVar[int] = 1
    """The least difference between two keys; 0 for floats."""

    lowest: Number = LOWEST
    """The key of the lowest value that can be ranked and that Python can represent."""

    highest: Number = HIGHEST

    whole: Callable[[Any], int]
    """A value as an integer of any size, in the order of values."""

    def units(self, value: Any) -> int:
        """Return ``value`` as a 64-bit integer. Raises :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.whole(value)
        if LOWEST <= units <= HIGHEST:
            return units
        raise beyond(units)

    def value(self, units: int) -> Any:
        return units

    def key(self, value: Any) -> Number:
        """Return a number for ``value`` without loss: its units; for floats, the value."""
        return self.units(value)

    def at(self, key: Number) -> Any:
        return self.value(int(key))

    def ranges(self, low: Number, high: Number, count: int) -> list[tuple[Number, Number]]:
        """Return at most ``count`` ranges of keys of the same width, both ends included, from ``low`` to ``high``."""
        width = -(-(int(high) - int(low) + 1) // count)
        return [(at, min(at + width - 1, int(high))) for at in range(int(low), int(high) + 1, width)]

    def limits(self, *, as_score: bool) -> tuple[Number, Number] | None:
        """Return the lowest and the highest key that can be ranked; None if no column can hold others."""
        return None

    def decode(self, score: float) -> Any:
        """Return the value that was stored as a score: exact, unless the kind is wide and it lies beyond ±2**53."""
        return self.value(int(score))

    def encoder(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """Return a function from the values of an order with this one criterion to the score and the tie bytes. It
        runs a million times, so it makes as few calls as possible."""
        whole = self.whole

        def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
            units = whole(values[0])
            if EXACT_LOW <= units <= EXACT:
                return units, b""
            raise Unrankable(
                f"{units} is beyond ±2**53, up to which scores are exact: as the first criterion, larger values need a "
                "BigIntegerField, or a DecimalField of more than 15 digits"
            )

        def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
            # 2**53 and 2**53 + 1 share a double, so 2**53 needs tie bytes too.
            units = whole(values[0])
            if EXACT_LOW < units < EXACT:
                return units, b""
            if LOWEST <= units <= HIGHEST:
                return float(units), NUL + pack(units)
            raise beyond(units)

        return encode_wide if self.is_wide else encode

    def encoder_of_first(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """Return a function from the values of several criteria to the score and the tie bytes of the first one."""
        units_of = self.units

        def encode_wide(values: Sequence[Any]) -> tuple[Number, bytes]:
            units = units_of(values[0])
            return (units if EXACT_LOW < units < EXACT else float(units)), pack(units)

        return encode_wide if self.is_wide else self.encoder()

    def bound(self, value: Any) -> tuple[float, bytes]:
        """Return the score of ``value``, and its packed units if the score is not exact. Raises
        :exc:`~django_zrank.exceptions.Unrankable`."""
        units = self.units(value)
        return float(units), pack(units) if self.is_wide and not EXACT_LOW < units < EXACT else b""

    def check(self, value: Any) -> Any:
        """Return ``value`` if it is valid in a query. Raises ``ValueError``."""
        raise NotImplementedError

    def check_loaded(self, value: Any) -> None:
        """Check the value of an instance, which may have been given another type. Raises ``ValueError``."""

    @property
    def doubt(self) -> tuple[str, str] | None:
        """What a check warns of, and its hint; None if every value of the column can be ranked as it is."""
        return None

    # Distances between two values

    distance_pattern: ClassVar[str] = NUMBER
    """The regular expression of a distance in a query string."""

    distance_example: ClassVar[str] = "50,100"

    def distance(self, value: Any) -> Number:
        """Return a distance between two values in units, at most 2**64. Raises ``ValueError``."""
        raise NotImplementedError

    def parse_distance(self, text: str) -> Distance:
        """Parse a distance in a query string. Raises ``ValueError``."""
        raise NotImplementedError

    @property
    def distance_schema(self) -> Schema:
        """One side of a band, as a response shows it."""
        return {"type": "number", "example": 10}

    # In JSON, and in text that clients send

    pattern: ClassVar[str] = ""
    """The regular expression of a value; empty for any text."""

    is_text: ClassVar[bool] = False

    @property
    def schema(self) -> Schema:
        """The values, as REST framework's encoder writes them."""
        return {"type": "string"}

    def spelled(self, text: str) -> str:
        """Return ``text`` as Django reads it. Raises ``ValueError`` if it isn't a spelling of a value."""
        return spelled(self.pattern, text) if self.pattern else text

    # As a facet

    def facet_text(self, value: Any) -> str:
        """Return the text of a value in the name of its ranking: the same on every database."""
        return str(value)

    def parse_facet(self, given: Any) -> Any:
        """Return a value to filter by in the field's own type. Raises what ``to_python()`` does, or ``ValueError``."""
        value = self.field.to_python(given)
        str(value).encode()  # raises for lone surrogates, and for integers of thousands of digits
        return value

    # As a key: ``str(parse(value))`` is the text of a value.

    exact: ClassVar[type | None] = None
    """The type whose values need no parsing, if there is one: ``str(value)`` is their text."""

    parse: Callable[[Any], Any]
    """A function from a value, or its text as any database casts it, to the value as Django reads it. It raises
    ``ValueError``."""

    def parse_input(self, given: Any) -> Any:
        """Parse a value that a caller gives. Raises ``ValueError``."""
        # Fields turn 7.5 into 7, and True into 1.
        if isinstance(given, bool):
            raise ValueError(f"{given!r} is a bool")
        return self.convert_input(given)

    def convert_input(self, given: Any) -> Any:
        try:
            value = self.field.to_python(given)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None
        except (OverflowError, TypeError) as error:
            raise ValueError(str(error)) from None
        is_fraction = isinstance(given, AnyNumber) and not isinstance(given, Integral)
        if value is None or (is_fraction and value != given):
            raise ValueError(f"{given!r} is not a value of {self.field}")
        return self.parse(value)

    # In a database

    converts: ClassVar[bool] = False
    """True if SQLite stores values as another type."""

    def held(self, vendor: str) -> str:
        """Return the template of a condition that Python has the value of a column; empty if it has all of them. Others
        count as null."""
        return ""

    def reading(self, vendor: str) -> str:
        """Return the template by which a column is read for Redis; empty if it is read as it is."""
        return self.readable(vendor)

    def readable(self, vendor: str) -> str:
        """Return the template of a value, null if Python doesn't have it; empty if it has all of them."""
        return f"CASE WHEN {held} THEN {VALUE} END" if (held := self.held(vendor)) else ""

    def comparable(self, path: str, connection: Any) -> Any:
        """Return the expression that a database sorts and groups as Redis does what it stores."""
        template = self.readable(connection.vendor)
        return OrNull(F(path), template=template) if template else F(path)

    def is_null(self, path: str, connection: Any) -> Q:
        """Return the condition that a column counts as null."""
        return Q(**{f"{path}__isnull": True})

    def collation(self, connection: Any) -> str | None:
        """Return the collation by which different values are never equal; None if that of the column does."""
        return None
