"""What drf-spectacular can't read off the views by itself. Imported only where it is used.

The query string is described by what parses it: the serializers of :mod:`.parameters`. Types come from the model:
of the index that the view serves, or, where the path names one, of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

import uritemplate
from django.utils.translation import gettext_lazy as _
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import NotFound

from ..index import RankIndex
from ..registry import registry
from .parameters import Parameter
from .query import RecommendationQuery
from .schemas import (
    Schema,
    distance_schema,
    enumeration,
    facet_schema,
    key_schema,
    object_schema,
    one_of,
    score_schema,
)
from .serializers import EntrySerializer

if TYPE_CHECKING:
    from rest_framework.serializers import Serializer

    from .viewsets import IndexViewSet

__all__ = ["IndexAutoSchema"]


class IndexAutoSchema(AutoSchema):
    """Describes the views of this app and their subclasses."""

    @property
    def viewset(self) -> IndexViewSet:
        """The view described."""
        return cast("IndexViewSet", self.view)

    # Of which index

    def get_indexes(self) -> list[RankIndex]:
        """The index that the view serves, or all that the path may name; to count by a facet, those that have one."""
        indexes = self._get_indexes()
        return [one for one in indexes if one.faceting] if self.viewset.action == "counts" else indexes

    def _get_indexes(self) -> list[RankIndex]:
        if self.viewset.index is not None or "index" not in uritemplate.variables(self.path):
            try:
                return [self.viewset.get_index()]
            except NotFound:  # No index is the default one, so the path has none to serve
                pass
        return registry.all()

    def is_excluded(self) -> bool:
        # Nothing can be counted by where no facet is declared.
        return (self.viewset.action == "counts" and not self.get_indexes()) or super().is_excluded()

    def get_operation_id(self) -> str:
        operation_id = super().get_operation_id()
        # Parameters don't count: else it would be the one of the path without the index.
        return f"index_{operation_id}" if "index" in uritemplate.variables(self.path) else operation_id

    # Parameters

    def get_override_parameters(self) -> list[Any]:
        return [
            *super().get_override_parameters(),
            *self._get_path_parameters(),
            *self._get_query_parameters(),
            OpenApiParameter(
                "Retry-After",
                int,
                OpenApiParameter.HEADER,
                description=str(_("Seconds after which to ask again.")),
                response=["503"],
            ),
        ]

    def _get_path_parameters(self) -> Iterable[OpenApiParameter]:
        view = self.viewset
        for name in uritemplate.variables(self.path):
            if name == "index" and view.index is None:
                schema = enumeration(index.name for index in self.get_indexes())
                description = _("The name of the index.")
            elif view.lookup_field == "pk" and name in {view.lookup_url_kwarg or "pk", "id"}:
                schema = one_of(key_schema(index) for index in self.get_indexes())
                description = _("The id of the member.")
                if view.action == "around":
                    schema = one_of([schema, {"type": "string", "enum": ["me"]}])
            else:
                continue
            yield OpenApiParameter(name, schema, OpenApiParameter.PATH, description=str(description))

    def _get_query_parameters(self) -> Iterable[OpenApiParameter]:
        if self.viewset.action not in _ACTIONS:
            return
        indexes = self.get_indexes()
        found: dict[str, dict[str, Parameter]] = {}
        for view in map(self._view_of, indexes):
            for name, parameter in view.get_query().parameters.items():
                if not parameter.hidden:
                    found.setdefault(name, {})[view.get_index().name] = parameter
        for name, by_index in found.items():
            parameters = list(by_index.values())
            everywhere = len(by_index) == len(indexes)
            description = str(parameters[0].help_text)
            if not everywhere:
                description = f"{description} ({', '.join(by_index)})".strip()
            yield OpenApiParameter(
                name,
                one_of(parameter.get_schema() for parameter in parameters),
                OpenApiParameter.QUERY,
                required=everywhere and all(parameter.required for parameter in parameters),
                description=description,
            )

    def _view_of(self, index: RankIndex) -> IndexViewSet:
        view = copy(self.viewset)
        view.index = index
        return view

    def get_filter_backends(self) -> list[Any]:
        view = self.viewset
        return (
            list(view.filter_backends) if view.shows_rows() and view.action in view.filtered_actions else []
        )

    # Responses

    def get_response_serializers(self) -> Any:
        if self.viewset.action not in _ACTIONS:  # One that the project has added
            return super().get_response_serializers()
        schema = _ACTIONS[self.viewset.action](self)
        example = OpenApiExample("Example", value=self._get_example(schema))
        invalid = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
        failed = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
        return {
            "200": OpenApiResponse(schema, examples=[example]),
            "400": self._get_error(
                "RankingParameterErrors",
                invalid,
                _("Nonsense. The body names the parameter."),
                {"n": ["Ensure this value is greater than or equal to 1."]},
            ),
            **{
                status: self._get_error("RankingError", failed, description, {"detail": detail})
                for status, description, detail in _FAILURES
            },
        }

    def _get_error(self, name: str, schema: Schema, description: Any, value: Any) -> OpenApiResponse:
        return OpenApiResponse(
            self._get_component(name, schema),
            description=str(description),
            examples=[OpenApiExample("Example", value=value)],
        )

    def _get_component(self, name: str, schema: Schema) -> Schema:
        component = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, object=name)
        self.registry.register_on_missing(component)
        return component.ref

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        name = super().get_serializer_name(serializer, direction)
        return f"{self._get_prefix()}{name}" if isinstance(serializer, EntrySerializer) else name

    def _get_prefix(self) -> str:
        """What sets the components of one index apart from those of another."""
        indexes = self.get_indexes()
        name = indexes[0].name if len(indexes) == 1 else "any index"
        return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", name))

    def _get_result_schema(self) -> Schema:
        """One member, as :meth:`~.viewsets.IndexViewSet.get_results` shows it."""
        serializer_class = self.viewset.get_serializer_class()
        if not self.viewset.shows_rows():
            return self.resolve_serializer(cast("Serializer[Any]", serializer_class()), "response").ref
        entry = self.resolve_serializer(EntrySerializer(), "response")
        serializer = serializer_class(context=self.viewset.get_serializer_context())
        row = self.resolve_serializer(cast("Serializer[Any]", serializer), "response")
        if not row:  # A serializer without fields
            return entry.ref
        schema: Schema = {"allOf": [entry.ref, row.ref]}
        properties = row.schema.get("properties", {})
        if properties.keys() & entry.schema["properties"].keys():  # The ranking's own are shown (combine())
            schema = {
                "type": "object",
                "properties": {**properties, **entry.schema["properties"]},
                "required": sorted({*row.schema.get("required", ()), *entry.schema["required"]}),
            }
        return self._get_component(f"{entry.name}With{row.name}", schema)

    def _get_around_schema(self) -> Schema:
        return object_schema(results={"type": "array", "items": self._get_result_schema()})

    def _get_counts_schema(self) -> Schema:
        values: dict[str, list[Schema]] = {}
        for index in self.get_indexes():
            view = self._view_of(index)
            for name, path in view.get_filters().items():
                values.setdefault(name, []).append({**facet_schema(index, path), "nullable": True})
        counted = object_schema(values={"type": "object", "properties": {}}, count={"type": "integer"})
        counted["properties"]["values"]["properties"] = {name: one_of(of) for name, of in values.items()}
        return object_schema(count={"type": "integer"}, results={"type": "array", "items": counted})

    def _is_list_view(self, serializer: Any = None) -> bool:
        # The entries of this list stand beside the band, so it isn't an array.
        return not (serializer is None and self._is_draw()) and super()._is_list_view(serializer)

    def _is_draw(self) -> bool:
        return issubclass(self.viewset.get_query_class(), RecommendationQuery)

    def _get_list_schema(self) -> Schema:
        if not self._is_draw():
            return self._get_result_schema()
        distances = one_of(distance_schema(index) for index in self.get_indexes())
        return object_schema(
            band={"type": "array", "items": distances, "minItems": 2, "maxItems": 2},
            candidates={"type": "integer"},
            results={"type": "array", "items": self._get_result_schema()},
        )

    def _get_example(self, schema: Mapping[str, Any], name: str = "") -> Any:
        """A value that ``schema`` allows."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            component = self.registry[ResolvedComponent(name, ResolvedComponent.SCHEMA, object=name)]
            return self._get_example(component.schema)
        if "allOf" in schema:
            parts = [self._get_example(part, name) for part in schema["allOf"]]
            return (
                parts[0] if len(parts) == 1 else {key: value for part in parts for key, value in part.items()}
            )
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return self._get_example(schema[choice][0], name)
        if "example" in schema:
            return schema["example"]
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                properties = schema.get("properties", {})
                return {key: self._get_example(part, key) for key, part in properties.items()}
            case "array":
                return [self._get_example(schema["items"], name)] * schema.get("minItems", 1)
            case "integer" if name in _NUMBERS:
                return _NUMBERS[name]
            case kind:
                formatted = _EXAMPLES.get(schema.get("format"))
                return _EXAMPLES.get(kind, "example") if formatted is None else formatted


_ACTIONS: Final[Mapping[str, Callable[[IndexAutoSchema], Schema]]] = {
    "list": IndexAutoSchema._get_list_schema,
    "retrieve": IndexAutoSchema._get_result_schema,
    "me": IndexAutoSchema._get_result_schema,
    "around": IndexAutoSchema._get_around_schema,
    "counts": IndexAutoSchema._get_counts_schema,
}
"""What each action answers."""

_FAILURES: Final = (
    ("401", _("Nobody has signed in."), "Authentication credentials were not provided."),
    ("403", _("Not allowed."), "You do not have permission to perform this action."),
    ("404", _("No such ranked member, page or index."), "This member is not in the ranking."),
    ("503", _("The ranking is unavailable at the moment."), "The ranking is unavailable at the moment."),
)

_EXAMPLES: Final[Mapping[str | None, Any]] = {
    "integer": 42,
    "number": 12.5,
    "boolean": True,
    "date": "2026-03-01",
    "date-time": "2026-03-01T12:00:00Z",
    "uuid": "6f1c2d3e-4b5a-4c7d-8e9f-0a1b2c3d4e5f",
    "email": "ada@example.org",
    "uri": "https://example.org/",
}

_NUMBERS: Final = {"pk": 4711, "score": 230, "rank": 1702, "candidates": 8312, "count": 12}


class KeyExtension(OpenApiSerializerFieldExtension):
    """``pk`` of a result."""

    target_class = "django_zrank.rest_framework.serializers.KeyField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        return one_of(key_schema(index) for index in auto_schema.get_indexes())


class ScoreExtension(OpenApiSerializerFieldExtension):
    """``score`` of a result."""

    target_class = "django_zrank.rest_framework.serializers.ScoreField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        return one_of(score_schema(index) for index in auto_schema.get_indexes())
