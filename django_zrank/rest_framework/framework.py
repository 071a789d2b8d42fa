"""Parameters that REST framework itself reads: those of filter backends, renderers and versioning."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from rest_framework.versioning import QueryParameterVersioning

if TYPE_CHECKING:
    from rest_framework.generics import GenericAPIView

__all__ = ["backend_parameters", "common_parameters"]


@cache
def common_parameters(format_parameter: str | None, versioning_class: Any) -> frozenset[str]:
    """The parameters of every action of a view: ``URL_FORMAT_OVERRIDE``, and that of its versioning class."""
    names = [format_parameter]
    if versioning_class is not None and issubclass(versioning_class, QueryParameterVersioning):
        names.append(versioning_class.version_param)
    return frozenset(filter(None, names))


def backend_parameters(view: GenericAPIView[Any]) -> Iterator[str]:
    """The parameters of a view's filter backends, by their OpenAPI names; of django-filter, by its own."""
    for backend_class in view.filter_backends:
        backend: Any = backend_class()
        if hasattr(backend, "get_filterset_class"):  # django-filter leaves the naming to drf-spectacular
            filterset = backend.get_filterset_class(view, view.get_queryset())
            for name, one in getattr(filterset, "base_filters", {}).items():
                suffixes = getattr(one.field_class.widget, "suffixes", ())  # of a range: level_min, level_max
                yield from [f"{name}_{suffix}" for suffix in suffixes] or [name]
        elif hasattr(backend, "get_schema_operation_parameters"):
            yield from (parameter["name"] for parameter in backend.get_schema_operation_parameters(view))
