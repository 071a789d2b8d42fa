"""System checks of the REST API, and the names of its parameters.

This imports nothing of REST framework, as every ``manage.py`` command loads it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from django.core.checks import CheckMessage, register
from django.core.exceptions import FieldDoesNotExist, FieldError

from ..checks import warning
from ..registry import registry

__all__ = ["RESERVED", "check_facet_names", "filter_name"]

RESERVED: Final = frozenset(
    [
        *("n", "band", "ranks", "widen", "exclude", "seed", "near", "member", "facet", "pk"),
        *("page", "page_size", "limit", "offset", "format"),
    ]
)
"""Names that no filter has by default: parameters of this app's views, of pages and of renderers."""


def filter_name(path: str, taken: Collection[str], paths: Collection[str]) -> str:
    """The parameter that filters by the facet at ``path``: its own name, or ``facet_band`` if ``band`` is ``taken``.
    ``paths``: those of all facets."""
    name = path
    while name in taken or (name != path and name in paths):
        name = f"facet_{name}"
    return name


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
