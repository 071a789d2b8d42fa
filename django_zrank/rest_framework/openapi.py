"""OpenAPI schemas of the views, by drf-spectacular. Imported only if that is installed.

The query string is described by what parses it, :mod:`.parameters`. Types are those of the model of the index that the
view serves, or of all indexes if the path has a variable for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import uritemplate
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from drf_spectacular.drainage import error
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import NotFound

from ..index import RankIndex
from ..registry import registry
from .examples import example_of
from .parameters import Parameter
from .query import RecommendationQuery
from .schemas import (
    Schema,
    component_name,
    distance_schema,
    enumeration,
    facet_schema,
    key_schema,
    object_schema,
    one_of,
    score_schema,
)
from .scores import IDEMPOTENCY_KEY, LONGEST_KEY, get_change_serializer
from .serializers import EntrySerializer, UnrankedSerializer, shows_rank

if TYPE_CHECKING:
    from rest_framework.serializers import Serializer

    from .viewsets import IndexViewSet

__all__ = ["IndexAutoSchema"]


class IndexAutoSchema(AutoSchema):
    """Describes the views of this app and their subclasses."""

    @property
    def viewset(self) -> IndexViewSet:
        return cast("IndexViewSet", self.view)

    # Indexes

    def get_indexes(self) -> list[RankIndex]:
        """The index that the view serves, or all that the path may name, as far as they support the action."""
        needed = {"counts": "faceting", "change": "rule"}.get(self.viewset.action or "")
        return [one for one in self._get_indexes() if not needed or getattr(one, needed)]

    def _get_indexes(self) -> list[RankIndex]:
        if self.viewset.index is None and "index" in uritemplate.variables(self.path):
            return registry.all()
        try:
            return [self.viewset.get_index()]
        except NotFound:  # No index is the default one
            return []

    def is_excluded(self) -> bool:
        # Short paths without a default index answer 404; without facets, so do counts.
        return not self.get_indexes() or super().is_excluded()

    def get_operation_id(self) -> str:
        operation_id = super().get_operation_id()
        # drf-spectacular ignores variables: it would be that of the path without the index.
        return f"index_{operation_id}" if "index" in uritemplate.variables(self.path) else operation_id

    # Parameters

    def get_override_parameters(self) -> list[Any]:
        found = [
            *super().get_override_parameters(),
            *self._get_path_parameters(),
            *self._get_query_parameters(),
        ]
        header = partial(OpenApiParameter, location=OpenApiParameter.HEADER)
        if self.viewset.action == "change":
            about = str(_("A unique name of this change: if it is sent again, it counts once."))
            schema = {"type": "string", "maxLength": LONGEST_KEY}
            found.append(header(IDEMPOTENCY_KEY, schema, description=about))
        about = str(_("Seconds after which to try again."))
        return [*found, header("Retry-After", int, description=about, response=["429", "503"])]

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
            try:
                query = view.get_query()
            except ImproperlyConfigured as problem:
                error(str(problem))
                continue
            for name, parameter in query.parameters.items():
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
                style=None if parameters[0].explode is None else "form",
                explode=parameters[0].explode,
            )

    def _view_of(self, index: RankIndex) -> IndexViewSet:
        view = copy(self.viewset)
        vars(view).pop("served", None)
        view.index = index
        return view

    def get_filter_backends(self) -> list[Any]:
        view = self.viewset
        shows = view.action in view.filtered_actions and view.shows_rows()
        return list(view.filter_backends) if shows else []

    # Requests and responses

    def get_request_serializer(self) -> Any:
        if self.viewset.action != "change":
            return super().get_request_serializer()
        changes = [get_change_serializer(index) for index in self.get_indexes()]
        if len(changes) == 1:
            return changes[0]
        return {"application/json": one_of(self.resolve_serializer(one(), "request").ref for one in changes)}

    def get_response_serializers(self) -> Any:
        if self.viewset.action not in _ACTIONS:  # One that the project has added
            return super().get_response_serializers()
        schema = _ACTIONS[self.viewset.action](self)
        example = OpenApiExample("Example", value=example_of(schema, self._get_component_schema))
        invalid = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
        failed = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
        of_changes = _OF_CHANGES if self.viewset.action == "change" else ()
        failures = (*_FAILURES, *of_changes, *(_THROTTLED if self.viewset.throttle_classes else ()))
        return {
            "200": OpenApiResponse(schema, examples=[example]),
            "400": self._get_error(
                "RankingParameterErrors",
                invalid,
                _("A parameter is invalid. The body names it."),
                {"n": ["Ensure this value is greater than or equal to 1."]},
            ),
            **{
                status: self._get_error("RankingError", failed, description, {"detail": detail})
                for status, description, detail in failures
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

    def _get_component_schema(self, name: str) -> Schema:
        component = ResolvedComponent(name, ResolvedComponent.SCHEMA, object=name)
        return cast("Schema", self.registry[component].schema)

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        name = super().get_serializer_name(serializer, direction)
        if not isinstance(serializer, EntrySerializer):
            return name
        indexes = self.get_indexes()
        return component_name(indexes[0].name if len(indexes) == 1 else "any index") + name

    def _get_result_schema(self) -> Schema:
        """One member, as :meth:`~.viewsets.IndexViewSet.get_results` serializes it."""
        serializer_class = self.viewset.get_serializer_class()
        if not self.viewset.shows_rows():
            return self.resolve_serializer(cast("Serializer[Any]", serializer_class()), "response").ref
        entry_class = EntrySerializer if shows_rank(serializer_class) else UnrankedSerializer
        entry = self.resolve_serializer(entry_class(), "response")
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

    def _get_change_schema(self) -> Schema:
        of = self.get_indexes()
        return object_schema(pk=one_of(map(key_schema, of)), score=one_of(map(score_schema, of)))

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
        query_class = self.viewset.query_classes.get(self.viewset.action or "")
        return query_class is not None and issubclass(query_class, RecommendationQuery)

    def _get_list_schema(self) -> Schema:
        if not self._is_draw():
            return self._get_result_schema()
        indexes = self.get_indexes()
        windows = [{"type": "integer", "description": "Ranks."}] if self.viewset.allow_band else []  # type: ignore[attr-defined]
        distances = one_of([*map(distance_schema, indexes), *windows])
        return object_schema(
            band={"type": "array", "items": distances, "minItems": 2, "maxItems": 2},
            candidates={"type": "integer", "nullable": True},
            results={"type": "array", "items": self._get_result_schema()},
        )


_ACTIONS: Final[Mapping[str, Callable[[IndexAutoSchema], Schema]]] = {
    "list": IndexAutoSchema._get_list_schema,
    "retrieve": IndexAutoSchema._get_result_schema,
    "me": IndexAutoSchema._get_result_schema,
    "around": IndexAutoSchema._get_around_schema,
    "counts": IndexAutoSchema._get_counts_schema,
    "change": IndexAutoSchema._get_change_schema,
}

_FAILURES: Final = (
    ("401", _("Nobody has signed in."), "Authentication credentials were not provided."),
    ("403", _("Not allowed."), "You do not have permission to perform this action."),
    ("404", _("No such ranked member, page or index."), "This member is not in the ranking."),
    ("503", _("The ranking is unavailable at the moment."), "The ranking is unavailable at the moment."),
)

_THROTTLED: Final = (("429", _("Too many requests."), "Request was throttled."),)

_OF_CHANGES: Final = (
    ("415", _("The body is not JSON."), 'Unsupported media type "text/plain" in request.'),
    ("422", _("The key was used for another change."), "This idempotency key was used for another change."),
)
