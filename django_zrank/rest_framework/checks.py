"""System checks of the REST API."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning, register
from django.core.exceptions import FieldDoesNotExist, FieldError

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
        messages += [
            Warning(
                f"{type(index).__name__}.facets: {path!r} is a parameter of the REST API, so the filter is called "
                f"{filter_name(path, RESERVED, paths)!r} there.",
                hint="Name it in get_filters() of your views, or add zrank.W050 to SILENCED_SYSTEM_CHECKS.",
                obj=type(index),
                id="zrank.W050",
            )
            for path in paths
            if path in RESERVED
        ]
    return messages
