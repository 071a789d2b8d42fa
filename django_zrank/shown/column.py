"""Columns that are shown: their values as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, Final

from django.core.exceptions import FieldError
from django.db import models
from django.db.models.fields.files import FieldFile

from ..codec.fields import follow
from ..codec.kinds import Text, kind_of

__all__ = ["ShownColumns"]

_FURTHER: Final = (models.FileField, models.JSONField)
"""Fields of no kind whose values are JSON: the name of a file, and JSON itself."""

_LEVELS: Final = 100
"""Levels of nested JSON that are shown: reading a thousand raises ``RecursionError``, for all members of a page."""

_decode: Final = json.JSONDecoder().raw_decode
"""For what has been encoded here: ``decode()`` takes twice the time for ten members, to look for spaces around."""

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class ShownColumn:
    """A column of a row, or of one that it leads to."""

    def __init__(self, field: Any) -> None:
        kind = kind_of(field)
        self.to_json: Callable[[Any], Any] = _plain
        self.from_json: Callable[[Any], Any] | None = None
        """A function from JSON to a value; None if the value is JSON itself."""

        if kind.is_text or isinstance(kind.field, models.FileField):
            self.to_json = _text
        elif kind.is_criterion:
            self.to_json = kind.key
            self.from_json = None if kind.schema["type"] == "integer" else kind.at
        elif kind.is_key:
            self.to_json, self.from_json = lambda value: str(kind.parse(value)), kind.parse

    def encode(self, value: Any) -> Any:
        """Return a value as JSON; null if it is null, or if Python or Redis can't represent it."""
        if value is None:
            return None
        try:
            return self.to_json(value)
        except Exception:  # noqa: BLE001 - whatever a value raises, its row keeps its rank
            return None


def _text(value: Any) -> str:
    return Text.parse(str(value) if isinstance(value, FieldFile) else value)


def _plain(value: Any) -> Any:
    if _is_deeper(value, _LEVELS):
        raise ValueError
    _encode(
        value
    ).encode()  # raises for what is no JSON, which a client couldn't read: infinity, lone surrogates
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Return True if a value of JSON has more levels than these."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return not levels or any(_is_deeper(part, levels - 1) for part in parts)


class ShownColumns:
    """The columns that an index shows, in order."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.paths = list(fields)
        self._columns = [*map(ShownColumn, fields.values())]
        self._nothing = self.encode([None] * len(fields))
        converters = [(at, column.from_json) for at, column in enumerate(self._columns)]
        self._converted = [(at, from_json) for at, from_json in converters if from_json]

    @classmethod
    def parse(cls, model: type[models.Model], declared: Any) -> ShownColumns:
        """Return the columns that ``shown`` declares. Raises ``FieldDoesNotExist`` and ``FieldError``."""
        if not isinstance(declared, (tuple, list)) or not all(isinstance(path, str) for path in declared):
            raise FieldError(f"expected a tuple of lookup paths, not {declared!r}")
        if len({*declared}) < len(declared):
            raise FieldError("a column is named twice")
        return cls({path: _field(model, path) for path in declared})

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the values of a row as JSON: a list, in which strings escape NUL."""
        columns = zip(self._columns, values, strict=True)
        return _encode([column.encode(value) for column, value in columns]).encode()

    def decode(self, texts: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the values of several rows in their fields' own types, by their paths; None for each of a row without
        a text."""
        rows, _ = _decode((b"[%s]" % b",".join([text or self._nothing for text in texts])).decode())
        for at, from_json in self._converted:
            for row in rows:
                if row[at] is not None:
                    row[at] = from_json(row[at])
        return [*map(dict, map(zip, repeat(self.paths), rows))]  # half the time of a comprehension

    @cached_property
    def declared(self) -> list[Any]:
        """The differences between declarations, besides the types of the columns."""
        return ["shown", self.paths]


def _field(model: type[models.Model], path: str) -> Any:
    """Return the field at the end of a path that has one value for each row. Raises ``FieldError``."""
    *relations, field = follow(model, path)
    if any(one.one_to_many or one.many_to_many for one in (*relations, field)):
        raise FieldError(f"{path} may have several values for one row")
    kind = kind_of(field)
    if not (kind.is_criterion or kind.is_facet or kind.is_key or isinstance(kind.field, _FURTHER)):
        raise FieldError(f"{path} is a {type(kind.field).__name__}, whose values can't be shown")
    return field
