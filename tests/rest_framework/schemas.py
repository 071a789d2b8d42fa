"""The OpenAPI schema of the site that the settings name, and answers that it allows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.validation import validate_schema

from django_zrank.rest_framework import openapi

assert openapi.IndexViewExtension  # As by the views where drf-spectacular is installed


def generate() -> Schema:
    """The schema, valid and without one warning, as by ``spectacular --validate --fail-on-warn``, in half the time."""
    schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    assert not GENERATOR_STATS
    validate_schema(schema)  # type: ignore[no-untyped-call]
    return Schema(OpenApiJsonRenderer().render(schema))


class Schema:
    """A schema, given as JSON."""

    def __init__(self, text: str | bytes) -> None:
        whole = json.loads(text)
        self.paths: dict[str, Any] = whole["paths"]
        self.components: dict[str, Any] = whole["components"].get("schemas", {})
        self._refers_to = {"components": _as_json_schema(whole["components"])}

    def parameters(self, path: str) -> dict[str, Any]:
        """Those of a path by name."""
        return {one["name"]: one for one in self.paths[path]["get"].get("parameters", ())}

    def content(self, path: str, status: str = "200", method: str = "get") -> Any:
        return self.paths[path][method]["responses"][status]["content"]["application/json"]

    def validate(self, path: str, answer: Any, status: str = "200", method: str = "get") -> None:
        """Raise where ``answer`` is none that the schema allows."""
        allowed = _as_json_schema(self.content(path, status, method)["schema"])
        jsonschema.Draft202012Validator({**allowed, **self._refers_to}).validate(answer)


def _as_json_schema(part: Any) -> Any:
    """OpenAPI 3.0 says nullable where JSON schema has a type of its own; and nothing else may be shown."""
    if isinstance(part, list):
        return [_as_json_schema(one) for one in part]
    if not isinstance(part, dict):
        return part
    converted = {key: _as_json_schema(value) for key, value in part.items()}
    if converted.pop("nullable", False) is True:
        converted["type"] = [converted["type"], "null"]
    if isinstance(converted.get("properties"), dict) and converted.get("type") == "object":
        converted.setdefault("minProperties", 1)
    return converted
