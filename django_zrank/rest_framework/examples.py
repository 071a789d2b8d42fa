"""Example values for JSON schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .schemas import Schema

__all__ = ["example_of"]

_BY_FORMAT: Final[Mapping[str | None, Any]] = {
    "integer": 42,
    "number": 12.5,
    "boolean": True,
    "date": "2026-03-01",
    "date-time": "2026-03-01T12:00:00Z",
    "uuid": "6f1c2d3e-4b5a-4c7d-8e9f-0a1b2c3d4e5f",
    "email": "ada@example.org",
    "uri": "https://example.org/",
}

_BY_NAME: Final = {"pk": 4711, "score": 230, "rank": 1702, "candidates": 8312, "count": 12}


def example_of(schema: Mapping[str, Any], resolve: Callable[[str], Schema], name: str = "") -> Any:
    """A value that ``schema`` allows. ``resolve`` looks up a component; ``name``: of the property."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return example_of(resolve(name), resolve, name)
    if "allOf" in schema:
        parts = [example_of(part, resolve, name) for part in schema["allOf"]]
        return parts[0] if len(parts) == 1 else {key: value for part in parts for key, value in part.items()}
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return example_of(schema[choice][0], resolve, name)
    if "example" in schema:
        return schema["example"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {key: example_of(part, resolve, key) for key, part in properties.items()}
        case "array":
            return [example_of(schema["items"], resolve, name)] * schema.get("minItems", 1)
        case "integer" if name in _BY_NAME:
            return _BY_NAME[name]
        case kind:
            formatted = _BY_FORMAT.get(schema.get("format"))
            return _BY_FORMAT.get(kind, "example") if formatted is None else formatted
