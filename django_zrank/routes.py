"""The indexes that the project's URLs serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.urls import get_resolver

from .index import RankIndex
from .registry import registry

__all__ = ["served"]

_VIEWS = "django_zrank.rest_framework.viewsets"


def served() -> list[RankIndex]:
    """The indexes that a view of the REST API answers for, in the order of their registration."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    try:
        callbacks = list(_callbacks(get_resolver().url_patterns))
    except Exception:  # noqa: BLE001 - a URLconf that can't be loaded is Django's to report
        return []
    views = sys.modules.get(_VIEWS)  # not imported here: REST framework is optional
    if views is None:
        return []
    found: set[type[RankIndex]] = set()
    for callback in callbacks:
        view = getattr(callback, "cls", None)
        if isinstance(view, type) and issubclass(view, views.IndexViewSet):
            found.update(_indexes(view, getattr(callback, "initkwargs", {}), views.IndexViewSet))
    return [index for index in registry.all() if type(index) in found]


def _callbacks(patterns: Any) -> Iterator[Any]:
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _callbacks(pattern.url_patterns)
        else:
            yield pattern.callback


def _indexes(view: Any, initkwargs: dict[str, Any], base: Any) -> list[type[RankIndex]]:
    index = initkwargs.get("index", view.index)
    if index is not None:
        return [index if isinstance(index, type) else type(index)]
    if view.get_index is not base.get_index or view.get_member is not base.get_member:
        return []  # unknown
    return list(map(type, registry.all()))
