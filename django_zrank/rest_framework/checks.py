"""System checks of the REST API, which its views bring, and the names of its parameters."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from inspect import isclass
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.db.models.constants import LOOKUP_SEP
from django.urls import get_resolver

from ..checks import view_check, warning
from ..index import RankIndex
from ..registry import registry

__all__ = ["RESERVED", "check_facet_names", "check_owners", "check_several_rows", "filter_name"]

RESERVED: Final = frozenset(
    [
        *(
            "n",
            "band",
            "ranks",
            "widen",
            "exclude",
            "seed",
            "near",
            "member",
            "facet",
            "in",
            "pk",
            "after",
            "before",
        ),
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


@view_check()
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


@view_check()
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


@view_check(deploy=True)
def check_several_rows(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check for indexes of which a user may own several rows that no filter tells apart."""
    views = _views()
    served = {
        index
        for view, indexes in _served_by().items()
        if not issubclass(view, views.ScoreViewSet)
        and all(getattr(view, name) is getattr(views.IndexViewSet, name) for name in _CHOICE)
        for index in indexes
    }
    return [
        warning(
            cls,
            f".owner: a user may own several rows by {index.get_owner()!r}, and no unique constraint says that facets "
            "tell them apart, so me/ and recommendations/ return a 400 (ambiguous_member) if filters leave several.",
            'Add a UniqueConstraint of the owner and of columns in facets, such as fields=["user", "season"] with '
            'facets = ("season",). Or choose the row: override get_member(self) of the view, or get_member(self, user) '
            "of the index. If clients choose it by ?member=, silence this.",
            "zrank.W012",
        )
        for cls, index in sorted(((cls, cls.instance()) for cls in served), key=lambda one: one[1].name)
        if cls.get_member is RankIndex.get_member and _may_leave_several(index)
    ]


_CHOICE: Final = ("get_member", "get_asking", "get_ranking")
"""The methods of a view by which a project may choose one of several rows."""


def _may_leave_several(index: RankIndex) -> bool:
    owner = index.get_owner()
    try:
        return (
            owner is not None
            and index.has_several
            and not _is_told(index.model, {owner, *index.faceting.paths})
        )
    except (FieldDoesNotExist, FieldError):
        return False  # zrank.E017, zrank.E025


def _is_told(model: Any, paths: Collection[str]) -> bool:
    """Return True if unique constraints allow at most one row of ``model`` with certain values at ``paths``."""

    def is_fixed(name: str) -> bool:
        field = model._meta.get_field(name)
        if {name, field.attname, "pk" if field.primary_key else name} & set(paths):
            return True
        begin = f"{name}{LOOKUP_SEP}"
        beyond = {path.removeprefix(begin) for path in paths if path.startswith(begin)}
        return bool(beyond) and _is_told(field.related_model, beyond)

    return any(all(map(is_fixed, names)) for names in _unique_columns(model))


def _unique_columns(model: Any) -> Iterator[Collection[str]]:
    """Yield the fields of each unique constraint of a model, and of its parents."""
    for options in (one._meta for one in (model, *model._meta.get_parent_list())):
        yield from ([field.name] for field in options.local_concrete_fields if field.unique)
        yield from options.unique_together
        yield from (constraint.fields for constraint in options.total_unique_constraints)


def _served() -> set[type[RankIndex]]:
    """Return the indexes that a view in the project's URLs answers for."""
    return {index for indexes in _served_by().values() for index in indexes}


def _views() -> Any:
    """Return the module of views; None if it couldn't be loaded."""
    return sys.modules.get("django_zrank.rest_framework.viewsets")


def _served_by() -> dict[Any, set[type[RankIndex]]]:
    """Return the indexes that each view in the project's URLs answers for."""
    found: dict[Any, set[type[RankIndex]]] = {}
    try:
        patterns = list(get_resolver().url_patterns)
        for pattern in patterns:  # grows
            patterns += getattr(pattern, "url_patterns", ())
    except Exception:  # noqa: BLE001 - a URLconf that can't be loaded is Django's to report
        return found
    base = getattr(_views(), "IndexViewSet", None)
    for pattern in patterns:
        callback: Any = getattr(pattern, "callback", None)
        if base is None or not isclass(getattr(callback, "cls", None)) or not issubclass(callback.cls, base):
            continue
        view: Any = callback.cls
        index = callback.initkwargs.get("index", view.index)
        served = found.setdefault(view, set())
        if index is not None:
            served.add(index if isinstance(index, type) else type(index))
        elif view.get_index is base.get_index and view.get_member is base.get_member:  # others: unknown
            served.update(map(type, registry.all()))
    return found
