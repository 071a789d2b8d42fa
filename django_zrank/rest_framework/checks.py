"""System checks of the REST API, which its views bring, and the names of its parameters."""

from __future__ import annotations

import sys
from collections.abc import Collection
from inspect import isclass
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.urls import get_resolver

from ..checks import view_check, warning
from ..index import RankIndex
from ..registry import registry

__all__ = ["RESERVED", "check_facet_names", "check_owners", "filter_name"]

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


@view_check
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


@view_check
def check_owners(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check for indexes that are served, though the REST API can't look up the user's row."""
    try:
        user_model, served = get_user_model(), _served()
    except ImproperlyConfigured:  # no user can sign in
        return []
    return [
        warning(
            type(index),
            " has no owner, so the REST API can't look up the user's row.",
            f"Set owner to the lookup path from {index.model._meta.label} to {user_model._meta.label}. If users own no "
            "rows, silence this: clients pass ?member=, if the view allows it.",
            "zrank.W005",
        )
        for index in registry.all()
        if type(index) in served
        and not issubclass(user_model, index.model)
        and type(index).get_member is RankIndex.get_member
        and index.get_owner() is None
    ]


def _served() -> set[type[RankIndex]]:
    """Return the indexes that a view in the project's URLs answers for."""
    found: set[type[RankIndex]] = set()
    try:
        patterns = list(get_resolver().url_patterns)
        for pattern in patterns:  # grows
            patterns += getattr(pattern, "url_patterns", ())
    except Exception:  # noqa: BLE001 - a URLconf that can't be loaded is Django's to report
        return found
    base = getattr(sys.modules.get("django_zrank.rest_framework.viewsets"), "IndexViewSet", None)
    for pattern in patterns:
        callback: Any = getattr(pattern, "callback", None)
        if base is None or not isclass(getattr(callback, "cls", None)) or not issubclass(callback.cls, base):
            continue
        view: Any = callback.cls
        index = callback.initkwargs.get("index", view.index)
        if index is not None:
            found.add(index if isinstance(index, type) else type(index))
        elif view.get_index is base.get_index and view.get_member is base.get_member:  # others: unknown
            found.update(map(type, registry.all()))
    return found
