"""Receivers of model signals: saves, deletes and changed relations are turned into pushes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.apps import apps
from django.db import models
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete

from ..conf import get_settings
from ..index import RankIndex
from ..registry import registry
from .touched import Route, Touched
from .watched_tables import WatchedTable, every_row, watched_tables

__all__ = ["connect", "connect_all", "disable_sync", "disconnect"]

logger = logging.getLogger("django_zrank.sync")

_disabled: ContextVar[bool] = ContextVar("django_zrank_sync_disabled", default=False)


@contextmanager
def disable_sync() -> Iterator[None]:
    """Don't push what is saved or deleted in this block, by the current thread or task."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


_routes: dict[type[models.Model], list[Route]] = defaultdict(list)

_RECEIVERS: Final = "django_zrank.sync.signal_handlers"


def connect(index: RankIndex) -> None:
    """Listen to every model that ``index`` reads, and to their proxies and children.

    A single receiver for all senders would turn off Django's fast deletes of all models.
    """
    sources = watched_tables(index)
    for sender in apps.get_models(include_auto_created=True):
        routes = list(_routes_from(sender, index, sources))
        if routes:
            _routes[sender].extend(routes)
            post_save.connect(_saved, sender=sender, dispatch_uid=_RECEIVERS)
            pre_delete.connect(_deleting, sender=sender, dispatch_uid=_RECEIVERS)
            post_delete.connect(_deleted, sender=sender, dispatch_uid=_RECEIVERS)
            m2m_changed.connect(_related, sender=sender, dispatch_uid=_RECEIVERS)


def connect_all() -> None:
    """Listen for every registered index. Invalid declarations are left to ``manage.py check``."""
    for index in registry.all():
        try:
            connect(index)
        except Exception:
            logger.debug("Index %r has an invalid declaration", index.name, exc_info=True)


def disconnect(index: RankIndex) -> None:
    for routes in _routes.values():
        routes[:] = [route for route in routes if route.index is not index]


def _routes_from(
    sender: type[models.Model], index: RankIndex, sources: list[WatchedTable]
) -> Iterator[Route]:
    written = [source for source in sources if issubclass(sender, source.model)]
    if issubclass(sender, sources[0].model):  # a member, with its parents' rows
        yield Route(index, None, tuple(source for source in written if not source.path or source.inherited))
        written = [source for source in written if source.path and not source.inherited]
    for source in written:
        yield Route(index, source, (source,))
    for source in sources:
        for key in source.model._meta.fields if source.fields is None else source.fields:
            if _changes_silently(source.model, key) and issubclass(sender, key.related_model):  # type: ignore[arg-type]
                yield Route(index, source, (), key)


def _changes_silently(model: type[models.Model], key: models.Field[Any, Any]) -> bool:
    """Return True if deleting the target of ``key`` may change rows of ``model`` without a signal."""
    if not isinstance(key, models.ForeignKey):
        return False
    kept = (models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING)
    return bool(model._meta.auto_created) or key.remote_field.on_delete not in kept


def _saved(
    sender: type[models.Model],
    instance: models.Model,
    using: str,
    update_fields: frozenset[str] | None = None,
    **kwargs: Any,
) -> None:
    touched = Touched(using)
    for route in _routes_for(sender, using):
        if route.touched_by(update_fields):
            touched.add(route, instance)
    touched.push_on_commit()


def _deleting(sender: type[models.Model], instance: models.Model, using: str, **kwargs: Any) -> None:
    """Collect the members that are related to a row before it is deleted."""
    touched = Touched(using)
    for route in _routes_for(sender, using):
        if route.related is None:
            continue
        if route.key is not None:
            rows = every_row(route.related.model, using).filter(**{route.key.name: instance})
            owners = rows.order_by().values_list(route.related.column.attname, flat=True)
            touched.add_related(route.index, route.related, owners[: touched.limit])
        elif route.related.via is None:
            touched.add(route, instance)
        else:
            touched.add_members(route.index, route.related.members_of(instance, using, touched.limit))
    touched.push_on_commit()


def _deleted(sender: type[models.Model], instance: models.Model, using: str, **kwargs: Any) -> None:
    touched = Touched(using)
    for route in _routes_for(sender, using):
        if route.related is None:
            touched.add(route, instance)
    touched.push_on_commit()


def _related(
    sender: type[models.Model],
    instance: models.Model,
    action: str,
    reverse: bool,
    model: type[models.Model],
    pk_set: set[Any] | None,
    using: str,
    **kwargs: Any,
) -> None:
    """Collect members when rows of a through table are added, or about to be removed."""
    routes = [
        route for route in _routes_for(sender, using) if route.related is not None and route.key is None
    ]
    if action not in ("post_add", "pre_remove", "pre_clear") or pk_set == set() or not routes:
        return
    holder = model if reverse else type(instance)
    field: Any = next(field for field in holder._meta.many_to_many if field.remote_field.through is sender)
    near, far = field.m2m_field_name(), field.m2m_reverse_field_name()
    if reverse:
        near, far = far, near
    between = _between(near, instance, far, pk_set)
    if field.remote_field.symmetrical:
        between |= _between(far, instance, near, pk_set)
    rows = every_row(sender, using).filter(between).order_by()
    touched = Touched(using)
    for route in routes:
        source: Any = route.related
        owners = rows.values_list(source.column.attname, flat=True)
        touched.add_related(route.index, source, owners[: touched.limit])
    touched.push_on_commit()


def _between(near: str, instance: models.Model, far: str, others: set[Any] | None) -> models.Q:
    """Return the condition for rows from ``instance`` to ``others``, None for all."""
    return models.Q((near, instance)) & (models.Q() if others is None else models.Q((f"{far}__in", others)))


def _routes_for(sender: type[models.Model], using: str) -> list[Route]:
    if _disabled.get() or not get_settings().auto_sync:
        return []
    return [route for route in _routes[sender] if route.index.get_using() == using]
