"""OpenAPI schemas of the views, by drf-spectacular. Imported only if that is installed.

The query string is described by what parses it, :mod:`.query`. Types are those of the model of the index that the view
serves. If the path has a variable for the index, those of all indexes are alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import uritemplate
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from drf_spectacular.drainage import error, isolate_view_method
from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiViewExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import NotFound
from rest_framework.serializers import DecimalField

from ..codec.kinds import Schema
from ..index import RankIndex
from ..registry import registry
from .query import QueryField, RecommendationQuery
from .serializers import (
    IDEMPOTENCY_KEY,
    LONGEST_KEY,
    REPLAYED,
    EntrySerializer,
    UnrankedSerializer,
    component_name,
    distance_schema,
    enumeration,
    facet_schema,
    key_schema,
    object_schema,
    one_of,
    score_schema,
    shown_schema,
    shows_rank,
)

_CODES: Final = {
    400: ["ambiguous_member", "filter_too_large", "too_many_parameters"],
    401: ["not_authenticated", "authentication_failed"],
    403: ["permission_denied"],
    404: ["not_ranked", "no_owner", "no_index", "not_found"],
    415: ["unsupported_media_type"],
    422: ["key_reused"],
    429: ["throttled"],
    503: ["index_unavailable", "filter_not_ready"],
}
"""The codes of errors, by status."""


class IndexAutoSchema(AutoSchema):
    """Describes the views of this app and their subclasses."""

    view: Any

    # Indexes

    def get_indexes(self) -> list[RankIndex]:
        """The index that the view serves, or all that the path may name, as far as they support the action."""
        needed = {"counts": "faceting", "change": "is_ahead"}.get(self.view.action)
        try:
            is_any = self.view.index is None and self._names_index()
            indexes = registry.all() if is_any else [self.view.get_index()]
        except NotFound:  # No index is the default one
            indexes = []
        return [index for index in indexes if not needed or getattr(index, needed)]

    def _names_index(self) -> bool:
        return "index" in uritemplate.variables(self.path)

    def _get_views(self) -> Iterator[Any]:
        """Yield the view as it serves each index."""
        for index in self.get_indexes():
            view = copy(self.view)
            vars(view).pop("served", None)
            view.index = index
            yield view

    def is_excluded(self) -> bool:
        # Short paths without a default index answer 404; without facets, so do counts.
        return not self.get_indexes() or super().is_excluded()

    def get_operation_id(self) -> str:
        operation_id = super().get_operation_id()
        # drf-spectacular ignores variables: it would be that of the path without the index.
        return f"index_{operation_id}" if self._names_index() else operation_id

    # Parameters

    def get_override_parameters(self) -> list[Any]:
        header = partial(OpenApiParameter, location=OpenApiParameter.HEADER)
        retry = str(_("Seconds after which to try again."))
        found = [
            *super().get_override_parameters(),
            *self._get_path_parameters(),
            *self._get_query_parameters(),
            header("Retry-After", int, description=retry, response=["429", "503"]),
        ]
        if self.view.action == "change":
            key = {"type": "string", "maxLength": LONGEST_KEY}
            once = str(_("A unique name of this change: if it is sent again, it counts once."))
            replayed = str(_("True if this change had been made before, under the same key."))
            found.append(header(IDEMPOTENCY_KEY, key, description=once))
            found.append(header(REPLAYED, enumeration(["true"]), description=replayed, response=["200"]))
        return found

    def _get_path_parameters(self) -> Iterator[OpenApiParameter]:
        view, indexes = self.view, self.get_indexes()
        for name in uritemplate.variables(self.path):
            if name == "index" and view.index is None:
                description = _("The name of the index.")
                schema = enumeration(index.name for index in indexes)
            elif view.lookup_field == "pk" and name in (view.lookup_url_kwarg or "pk", "id"):
                description = _("The id of the member.")
                schema = one_of(map(key_schema, indexes))
                if view.action in ("around", "gap"):
                    schema = one_of([schema, enumeration(["me"])])
            else:
                continue
            yield OpenApiParameter(name, schema, OpenApiParameter.PATH, description=str(description))

    def _get_query_parameters(self) -> Iterator[OpenApiParameter]:
        found: dict[str, dict[str, QueryField]] = {}
        for view in self._get_views() if self._describes_action() else ():
            try:
                fields = view.get_query().fields
            except ImproperlyConfigured as problem:
                error(str(problem))
                continue
            for name, field in fields.items():
                if isinstance(field, QueryField):  # The paginator describes the page
                    found.setdefault(name, {})[view.served.name] = field
        for name, of in found.items():
            field = next(iter(of.values()))
            everywhere = len(of) == len(self.get_indexes())
            description = str(field.help_text) if everywhere else f"{field.help_text} ({', '.join(of)})"
            yield OpenApiParameter(
                name,
                one_of(one.schema for one in of.values()),
                OpenApiParameter.QUERY,
                required=everywhere and field.required,
                description=description,
                style=None if field.explode is None else "form",
                explode=field.explode,
            )

    def get_filter_backends(self) -> list[Any]:
        view = self.view
        shows = view.action in view.filtered_actions and view.shows_rows()
        return list(view.filter_backends) if shows else []

    # Requests and responses

    def get_request_serializer(self) -> Any:
        if self.view.action != "change" or len(self.get_indexes()) == 1:
            return super().get_request_serializer()
        changes = (view.get_serializer_class()() for view in self._get_views())
        return {"application/json": one_of(self.resolve_serializer(one, "request").ref for one in changes)}

    def _describes_action(self) -> bool:
        """Return False for an action that the project has added."""
        return hasattr(self, f"_describe_{self.view.action}")

    def get_response_serializers(self) -> Any:
        if not self._describes_action():
            return super().get_response_serializers()
        schema = one_of(map(getattr(self, f"_describe_{self.view.action}"), self._get_views()))
        return {"200": schema, **self._get_error_responses()}

    def _get_error_responses(self) -> dict[str, OpenApiResponse]:
        text = {"type": "string"}
        texts = {"type": "array", "items": text}
        error = object_schema(detail=text, code=text)
        error["properties"]["parameters"] = {**texts, "description": "Those that tell several members apart."}
        general = self._get_component("RankingError", error)
        invalid = {"type": "object", "additionalProperties": texts}
        named = {"anyOf": [self._get_component("RankingParameterErrors", invalid), general]}
        found = {}
        for status, codes in _CODES.items():
            description = f"{HTTPStatus(status).phrase}: {', '.join(codes)}"
            found[str(status)] = OpenApiResponse(named if status == 400 else general, description)
        left_out = ["415", "422"] if self.view.action != "change" else []
        left_out += [] if self.view.throttle_classes else ["429"]
        return {status: error for status, error in found.items() if status not in left_out}

    def _get_component(self, name: str, schema: Schema) -> Schema:
        component = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, object=name)
        self.registry.register_on_missing(component)
        return component.ref

    def _get_result_schema(self, view: Any) -> Schema:
        """One member, as :meth:`~.viewsets.IndexViewSet.get_results` serializes it."""
        index, serializer_class = view.served, view.get_serializer_class()
        entry_class = serializer_class
        if view.shows_rows():
            entry_class = EntrySerializer if shows_rank(serializer_class) else UnrankedSerializer
        name = component_name(index.name) + self._get_serializer_name(entry_class(), "response")
        schema = self._map_serializer(entry_class(), "response")
        for own, values in (("pk", key_schema(index)), ("score", score_schema(index))):
            schema["properties"][own] = {**values, "readOnly": True}
        if "shown" in schema["properties"]:
            if index.attached_paths() and not view.shows_rows():
                schema["properties"]["shown"] = {**shown_schema(index), "readOnly": True}
            else:
                del schema["properties"]["shown"]
                schema["required"].remove("shown")
        if view.shows_rows():
            serializer = serializer_class(context=view.get_serializer_context())
            name += f"With{self._get_serializer_name(serializer, 'response')}"
            row = self._map_serializer(serializer, "response")
            # The ranking's own are shown of fields that both have (combine()).
            schema["properties"] = {**row.get("properties", {}), **schema["properties"]}
            schema["required"] = sorted({*row.get("required", ()), *schema["required"]})
        return self._get_component(name, schema)

    def _describe_retrieve(self, view: Any) -> Schema:
        result = self._get_result_schema(view)
        if not shows_rank(view.get_serializer_class()):
            return result
        percentage = {"type": "number", "minimum": 0, "maximum": 100}
        among_all = object_schema(count={"type": "integer"}, percentile=percentage)
        described = [result, self._get_component("Standing", among_all)]
        if "in" in view.get_query().fields:
            rank = {"type": "integer", "description": str(_("1 is best."))}
            standing = object_schema(
                values=self._get_values_schema(view), rank=rank, **among_all["properties"]
            )
            standings = {"type": "array", "items": standing, "description": str(_("Only with in."))}
            described.append({"type": "object", "properties": {"standings": standings}})
        return {"allOf": described}

    _describe_me = _describe_retrieve

    def _describe_around(self, view: Any) -> Schema:
        link = {"type": "string", "format": "uri", "nullable": True}
        return object_schema(
            next=link, previous=link, results={"type": "array", "items": self._get_result_schema(view)}
        )

    def _describe_gap(self, view: Any) -> Schema:
        result, null = self._get_result_schema(view), {"enum": [None]}
        gap = one_of([distance_schema(view.served), null])
        return {"allOf": [result, object_schema(above=one_of([result, null]), gap=gap)]}

    def _describe_change(self, view: Any) -> Schema:
        return object_schema(pk=key_schema(view.served), score=score_schema(view.served))

    def _get_values_schema(self, view: Any) -> Schema:
        """Values of facets, by the names of their filters."""
        values = {
            name: {**facet_schema(view.served, path), "nullable": True}
            for name, path in view.get_filters().items()
        }
        return {"type": "object", "properties": values}

    def _describe_counts(self, view: Any) -> Schema:
        counted = object_schema(values=self._get_values_schema(view), count={"type": "integer"})
        return object_schema(count={"type": "integer"}, results={"type": "array", "items": counted})

    def _describe_list(self, view: Any) -> Schema:
        if not self._is_draw():
            return self._get_result_schema(view)
        ranks = [{"type": "integer", "description": "Ranks."}] if view.allow_band else []
        distances = one_of([distance_schema(view.served), *ranks])
        return object_schema(
            band={"type": "array", "items": distances, "minItems": 2, "maxItems": 2},
            candidates={"type": "integer", "nullable": True},
            results={"type": "array", "items": self._get_result_schema(view)},
        )

    def _is_draw(self) -> bool:
        return issubclass(self.view.query_classes.get(self.view.action, object), RecommendationQuery)

    def _is_list_view(self, serializer: Any = None) -> bool:
        # The entries of a draw stand beside the band, so it isn't an array.
        return not (serializer is None and self._is_draw()) and super()._is_list_view(serializer)


# Extensions of drf-spectacular, which finds them once this is imported: by the views, if it is installed.


class IndexViewExtension(OpenApiViewExtension):
    """The views of this app and their subclasses, described by :class:`IndexAutoSchema`."""

    target_class = "django_zrank.rest_framework.viewsets.IndexViewSet"
    match_subclasses = True

    def view_replacement(self) -> Any:
        """A subclass of the view whose schema, and its annotated actions' schemas, extend :class:`IndexAutoSchema`."""
        found: Any = type(self.target.schema)
        if not issubclass(found, AutoSchema):
            return self.target
        attributes = {"__doc__": self.target.__doc__, "schema": _extend(found)()}
        view: Any = type(self.target.__name__, (self.target,), attributes)
        for name in set(self.target_callback.actions.values()):
            if annotated := getattr(getattr(view, name), "kwargs", {}).get("schema"):
                isolate_view_method(view, name).kwargs["schema"] = _extend(annotated)
        return view


def _extend(found: Any) -> Any:
    """Return a schema class, of a project or of ``@extend_schema``, with :class:`IndexAutoSchema` as a further base."""
    if issubclass(IndexAutoSchema, found):
        return IndexAutoSchema
    return type(IndexAutoSchema.__name__, (found, IndexAutoSchema), {})


class ChangeExtension(OpenApiSerializerExtension):
    """The body of a change of scores, which has no other fields."""

    target_class = "django_zrank.rest_framework.serializers.ChangeSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if isinstance(field, DecimalField) and field.decimal_places is not None:
                schema["properties"][name]["multipleOf"] = 10.0**-field.decimal_places
        return {**schema, "additionalProperties": False}
