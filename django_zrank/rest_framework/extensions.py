"""Extensions of drf-spectacular, which finds them once this is imported: by ``ready()``, if it is installed."""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

from drf_spectacular.extensions import (
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
from drf_spectacular.openapi import AutoSchema
from rest_framework.serializers import DecimalField

from .openapi import IndexAutoSchema
from .schemas import Schema, key_schema, one_of, score_schema

__all__ = ["ChangeExtension", "IndexViewExtension", "KeyExtension", "ScoreExtension"]


class IndexViewExtension(OpenApiViewExtension):
    """The views of this app and their subclasses, described by :class:`IndexAutoSchema`."""

    target_class = "django_zrank.rest_framework.base.IndexViewSet"
    match_subclasses = True

    def view_replacement(self) -> Any:
        """A subclass of the view whose schema, and its annotated actions' schemas, extend :class:`IndexAutoSchema`."""
        found: Any = type(self.target.schema)
        if not issubclass(found, AutoSchema):
            return self.target
        attributes: dict[str, Any] = {"__doc__": self.target.__doc__, "schema": _informed(found)()}
        for name in set(self.target_callback.actions.values()):
            method = getattr(self.target, name)
            annotated = getattr(method, "kwargs", {}).get("schema")
            if annotated is not None:
                attributes[name] = _copy(method, kwargs={**method.kwargs, "schema": _informed(annotated)})
        return type(self.target.__name__, (self.target,), attributes)


def _copy(method: Any, **attributes: Any) -> Any:
    """The same method with other ``attributes``."""

    @wraps(method)
    def copied(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    vars(copied).update(attributes)
    return copied


@cache
def _informed(found: Any) -> type[AutoSchema]:
    """The schema class of a project, or of ``@extend_schema``, with :class:`IndexAutoSchema` as a further base."""
    if issubclass(IndexAutoSchema, found):
        return IndexAutoSchema
    return type(IndexAutoSchema.__name__, (found, IndexAutoSchema), {})


class KeyExtension(OpenApiSerializerFieldExtension):
    """``pk`` of a result."""

    target_class = "django_zrank.rest_framework.serializers.KeyField"
    schema_of = staticmethod(key_schema)

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        return one_of(map(self.schema_of, auto_schema.get_indexes()))


class ScoreExtension(KeyExtension):
    """``score`` of a result."""

    target_class = "django_zrank.rest_framework.serializers.ScoreField"
    schema_of = staticmethod(score_schema)


class ChangeExtension(OpenApiSerializerExtension):
    """The body of a change of scores, which has no other fields."""

    target_class = "django_zrank.rest_framework.scores.ChangeSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if isinstance(field, DecimalField) and field.decimal_places is not None:
                schema["properties"][name]["multipleOf"] = 10.0**-field.decimal_places
        return {**schema, "additionalProperties": False}
