"""System checks of the REST API."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, register
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks.hooks import warning
from ..registry import registry
from .names import RESERVED, filter_name

__all__ = ["check_facet_names"]


@register("zrank")
def check_facet_names(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check for facets that have the name of a parameter of the REST API."""
    messages: list[CheckMessage] = []
    for index in registry.all():
        try:
            paths = index.faceting.paths if index.model else ()
        except (FieldDoesNotExist, FieldError):
            continue  # zrank.E025
        for path in filter(RESERVED.__contains__, paths):
            name = filter_name(path, RESERVED, paths)
            message = (
                f".facets: {path!r} is a parameter of the REST API, so the filter is called {name!r} there."
            )
            hint = "Name it in get_filters() of your views, or add zrank.W050 to SILENCED_SYSTEM_CHECKS."
            messages.append(warning(type(index), message, hint, "zrank.W050"))
    return messages
