"""How the views describe themselves to OpenAPI, where the project uses drf-spectacular."""

from __future__ import annotations

from functools import cache
from typing import Any

from rest_framework.schemas.inspectors import DefaultSchema, ViewInspector
from rest_framework.settings import api_settings

__all__ = ["IndexSchema"]


class IndexSchema(DefaultSchema):
    """The project's ``DEFAULT_SCHEMA_CLASS``; one of drf-spectacular's with what is known of the index.

    It is looked up when a schema is asked for, so drf-spectacular is neither needed nor imported before.
    """

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is not None and instance in self.instance_schemas:
            return self.instance_schemas[instance]
        inspector = _on_top_of(api_settings.DEFAULT_SCHEMA_CLASS)()
        inspector.view = instance
        return inspector


@cache
def _on_top_of(inspector: type[ViewInspector]) -> type[ViewInspector]:
    if "drf_spectacular.openapi" not in {base.__module__ for base in inspector.__mro__}:
        return inspector
    from .openapi import IndexAutoSchema

    return type(IndexAutoSchema.__name__, (IndexAutoSchema, inspector), {})
