"""OpenAPI schemas of the views, by drf-spectacular. Imported only if that is installed.

The query string is described by what parses it, :mod:`.parameters`. Types are those of the model of the index that the
view serves, or of all indexes if the path has a variable for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import uritemplate
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from drf_spectacular.drainage import error, isolate_view_method
from drf_spectacular.extensions import (
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import NotAuthenticated, NotFound, PermissionDenied, Throttled
from rest_framework.serializers import DecimalField

from ..index import RankIndex
from ..registry import registry
from .exceptions import FiltersTooLarge, KeyReused, MemberNotRanked, NoOwner, RankingUnavailable
from .fields import (
    PageField,
    QueryField,
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
from .query import RecommendationQuery
from .serializers import (
    IDEMPOTENCY_KEY,
    LONGEST_KEY,
    REPLAYED,
    EntrySerializer,
    UnrankedSerializer,
    get_change_serializer,
    shows_rank,
)

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
        try:
            is_any = self.viewset.index is None and self._names_index()
            indexes = registry.all() if is_any else [self.viewset.get_index()]
        except NotFound:  # No index is the default one
            indexes = []
        return [index for index in indexes if not needed or getattr(index, needed)]

    def _names_index(self) -> bool:
        return "index" in uritemplate.variables(self.path)

    def is_excluded(self) -> bool:
        # Short paths without a default index answer 404; without facets, so do counts.
        return not self.get_indexes() or super().is_excluded()

    def get_operation_id(self) -> str:
        operation_id = super().get_operation_id()
        # drf-spectacular ignores variables: it would be that of the path without the index.
        return f"index_{operation_id}" if self._names_index() else operation_id

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
            about = str(_("True if this change had been made before, under the same key."))
            replayed = {"type": "string", "enum": ["true"]}
            found.append(header(REPLAYED, replayed, description=about, response=["200"]))
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
        if self.viewset.action not in self.described:
            return
        indexes = self.get_indexes()
        fields: dict[str, QueryField] = {}
        schemas: dict[str, dict[str, Schema]] = {}
        for index in indexes:
            try:
                query = self._view_of(index).get_query()
            except ImproperlyConfigured as problem:
                error(str(problem))
                continue
            properties = self._map_serializer(query, "request").get("properties", {})
            for name, field in query.fields.items():
                if not isinstance(field, PageField):
                    fields.setdefault(name, cast("QueryField", field))
                    properties[name].pop("description", None)
                    schemas.setdefault(name, {})[index.name] = properties[name]
        for name, field in fields.items():
            everywhere = len(schemas[name]) == len(indexes)
            description = str(field.help_text or "")
            if not everywhere:
                description = f"{description} ({', '.join(schemas[name])})".strip()
            yield OpenApiParameter(
                name,
                one_of(schemas[name].values()),
                OpenApiParameter.QUERY,
                required=everywhere and field.required,
                description=description,
                style=None if field.explode is None else "form",
                explode=field.explode,
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
        if self.viewset.action != "change" or len(self.get_indexes()) == 1:
            return super().get_request_serializer()
        changes = map(get_change_serializer, self.get_indexes())
        return {"application/json": one_of(self.resolve_serializer(one(), "request").ref for one in changes)}

    def get_response_serializers(self) -> Any:
        describe = self.described.get(self.viewset.action or "")
        if describe is None:  # An action that the project has added
            return super().get_response_serializers()
        schema = describe(self)
        example = OpenApiExample("Example", value=example_of(schema, self._get_component_schema))
        responses = {"200": OpenApiResponse(schema, examples=[example])}
        left_out = {"415", "422"} if self.viewset.action != "change" else set()
        left_out |= set() if self.viewset.throttle_classes else {"429"}
        for status in _ERRORS.keys() - left_out:
            responses[status] = self._get_error(status)
        return responses

    def _get_error(self, status: str) -> OpenApiResponse:
        description, details = _ERRORS[status]
        texts = {"type": "array", "items": {"type": "string"}}
        schema = object_schema(detail={"type": "string"}, code={"type": "string"})
        schema["properties"]["parameters"] = {
            **texts,
            "description": "Those that tell several members apart.",
        }
        response = self._get_component("RankingError", schema)
        examples = [
            OpenApiExample(code, value={"detail": str(detail), "code": code})
            for code, detail in details.items()
        ]
        if status == "400":
            invalid = {"type": "object", "additionalProperties": texts}
            response = {"anyOf": [self._get_component("RankingParameterErrors", invalid), response]}
            named = {"n": ["Ensure this value is greater than or equal to 1."]}
            examples.insert(0, OpenApiExample("invalid", named))
        return OpenApiResponse(response, description=str(description), examples=examples)

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

    def _get_standing_schema(self) -> Schema:
        result = self._get_result_schema()
        if not shows_rank(self.viewset.get_serializer_class()):
            return result
        percentage = {"type": "number", "minimum": 0, "maximum": 100}
        among_all = object_schema(count={"type": "integer"}, percentile=percentage)
        return {"allOf": [result, self._get_component("Standing", among_all)]}

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

    described: ClassVar[Mapping[str, Callable[[IndexAutoSchema], Schema]]] = {
        "list": _get_list_schema,
        "retrieve": _get_standing_schema,
        "me": _get_standing_schema,
        "around": _get_around_schema,
        "counts": _get_counts_schema,
        "change": _get_change_schema,
    }
    """The schema of each action's response."""


_ERRORS: Final[Mapping[str, tuple[Any, Mapping[str, Any]]]] = {
    "400": (
        _("A parameter is invalid, which the body names; or the request can't be answered."),
        {
            "ambiguous_member": _("Several members of this ranking are yours."),
            "filter_too_large": FiltersTooLarge.default_detail,
            "too_many_parameters": _("There are too many parameters."),
        },
    ),
    "401": (_("Nobody has signed in."), {"not_authenticated": NotAuthenticated.default_detail}),
    "403": (_("Not allowed."), {"permission_denied": PermissionDenied.default_detail}),
    "404": (
        _("No such ranked member, page or index."),
        {
            "not_ranked": MemberNotRanked.default_detail,
            "no_owner": NoOwner.default_detail,
            "no_index": _("There is no index called “nothing”."),
            "not_found": _("Invalid page."),
        },
    ),
    "415": (
        _("The body is not JSON."),
        {"unsupported_media_type": 'Unsupported media type "text/plain" in request.'},
    ),
    "422": (_("The key was used for another change."), {"key_reused": KeyReused.default_detail}),
    "429": (_("Too many requests."), {"throttled": Throttled.default_detail}),
    "503": (
        _("The ranking is unavailable at the moment."),
        {
            "index_unavailable": RankingUnavailable.default_detail,
            "filter_not_ready": _("These filters take longer to compute."),
        },
    ),
}
"""Statuses, their descriptions, and an example of each code."""


# Extensions of drf-spectacular, which finds them once this is imported: by ready(), if it is installed.


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

    target_class = "django_zrank.rest_framework.serializers.ChangeSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Schema:
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if isinstance(field, DecimalField) and field.decimal_places is not None:
                schema["properties"][name]["multipleOf"] = 10.0**-field.decimal_places
        return {**schema, "additionalProperties": False}


class QueryFieldExtension(OpenApiSerializerFieldExtension):
    """Parameters of a query string that describe themselves."""

    target_class = "django_zrank.rest_framework.fields.QueryField"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        mapped = partial(auto_schema._map_serializer_field, self.target, direction, bypass_extensions=True)
        schema: Schema = self.target.get_schema() or mapped()
        return schema


# Examples

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

_BY_NAME: Final = {
    "pk": 4711,
    "score": 230,
    "rank": 1702,
    "candidates": 8312,
    "count": 8312,
    "percentile": 79.5,
}


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
