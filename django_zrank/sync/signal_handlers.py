"""Model signals -> one push after the commit of each transaction."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db import connections, models, transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete

from ..conf import get_settings
from ..isolation import may_use_redis
from ..models import Mark
from ..registry import registry
from .drain import drain_soon
from .flush import flush_soon
from .push import try_push
from .transactions import belongs_to
from .watched_tables import WatchedTable, every_row, watched_tables

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["connect", "connect_all", "disable_sync", "disconnect"]

logger = logging.getLogger("django_zrank.sync")

LIMIT: Final = 1000
"""The most members of an index that a transaction pushes, whoever waits for it. The marks of all others wait for a
drain."""

_disabled: ContextVar[bool] = ContextVar("django_zrank_sync_disabled", default=False)


@contextmanager
def disable_sync() -> Iterator[None]:
    """Nothing saved or deleted inside is pushed. Holds for the current thread or task only."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


@dataclass(frozen=True)
class Route:
    """The effect of a save or delete of one model on one index."""

    index: RankIndex

    related: WatchedTable | None
    """The table of the saved row, where that is not a member itself."""

    sources: tuple[WatchedTable, ...]
    """The tables that such a save writes."""

    key: models.Field[Any, Any] | None = None
    """The key of ``related`` whose target is deleted, if that changes rows without a signal of their own."""

    def touched_by(self, update_fields: frozenset[str] | None) -> bool:
        return any(source.touched_by(update_fields) for source in self.sources)


class Touched:
    """The members that one transaction touched, or as many as a push takes. Pushed once, after its commit."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.members: dict[RankIndex, set[str]] = defaultdict(set)
        self.related: dict[tuple[RankIndex, WatchedTable], set[str]] = defaultdict(set)
        self.limit = None if get_settings().capture == "signals" else LIMIT
        """The most of each that are kept: what a trigger has marked waits for a drain. None where marks are made
        of what is kept here."""

    def add(self, route: Route, instance: models.Model) -> None:
        """A row that was saved, or a member that was deleted."""
        if route.related is None:
            self._keep(self.members[route.index], [_member(route.index, instance)], route.index.to_text)
            return
        self.add_related(route.index, route.related, [getattr(instance, route.related.column.attname)])

    def add_related(self, index: RankIndex, source: WatchedTable, owners: Iterable[Any]) -> None:
        """Rows that changed, by what their columns say whose they are."""
        if source.via is not None:
            self._keep(self.related[index, source], owners, source.text_of)
        else:
            self.add_members(index, owners)

    def add_members(self, index: RankIndex, pks: Iterable[Any]) -> None:
        """Members, by their primary keys."""
        self._keep(self.members[index], pks, index.to_text)

    def _keep(self, kept: set[str], values: Iterable[Any], to_text: Callable[[Any], str]) -> None:
        """Keep the texts of ``values``, read as far as there is room."""
        if self.limit is not None:
            values = islice(values, max(self.limit - len(kept), 0))
        for value in values:
            # None leads nowhere, and what has no text is no member's key.
            with suppress(ValueError):
                if value is not None:
                    kept.add(to_text(value))

    def push_on_commit(self) -> None:
        """Join what the transaction has touched so far, or be the first.

        The list of the connection's commit hooks is where this is kept, because Django drops from it what a
        rollback undoes. Of a savepoint's hooks that outlive it, none can be dropped by less than what also
        undoes the changes made since; so any that is still there may be joined.
        """
        if not any(self.members.values()) and not any(self.related.values()):
            return
        if self.limit is None:
            Mark.objects.using(self.using).bulk_create(self.marks(), batch_size=LIMIT)
            self.limit = LIMIT
            for kept in (*self.members.values(), *self.related.values()):
                while len(kept) > LIMIT:
                    kept.pop()
        connection = connections[self.using]
        for savepoints, hook, *_ in connection.run_on_commit:
            first = getattr(hook, "__self__", None)
            if isinstance(first, Touched) and belongs_to(connection, savepoints):
                first.merge(self)
                return
        if connection.in_atomic_block or connection.get_autocommit():
            transaction.on_commit(self.push, using=self.using, robust=True)
        # else: whoever turned autocommit off commits by hand, and Django can't tell when.

    def marks(self) -> Iterator[Mark]:
        """Yield the marks that triggers would leave, for databases that forbid them."""
        for index, members in self.members.items():
            yield from (Mark(index=index.name, member=member) for member in members)
        for (index, source), owners in self.related.items():
            yield from (Mark(index=index.name, via=source.via, member=owner) for owner in owners)

    def merge(self, other: Touched) -> None:
        """Take over what another one holds."""
        for index, members in other.members.items():
            self._keep(self.members[index], members, str)
        for related, owners in other.related.items():
            self._keep(self.related[related], owners, str)

    def push(self) -> None:
        """Push the members. One index that fails doesn't keep the others waiting."""
        if not may_use_redis():
            return
        for index in dict.fromkeys([*self.members, *(index for index, _ in self.related)]):
            try:
                if try_push(index, self.members_of(index)):
                    drain_soon(index)
                    flush_soon(index)
            except Exception:  # the transaction is committed: nothing may fail it now
                logger.exception("Index %r: what a transaction changed was not pushed", index.name)

    def members_of(self, index: RankIndex) -> set[Any]:
        """The primary keys of the members of ``index`` that were touched, ``LIMIT`` at most."""
        texts = islice(self.members.get(index, ()), LIMIT)
        pks = set(map(index.from_text, texts))
        for (other, source), owners in self.related.items():
            if other is index and len(pks) < LIMIT:
                pks.update(source.members_at(owners, self.using, LIMIT - len(pks)))
        return pks


_routes: dict[type[models.Model], list[Route]] = defaultdict(list)

_RECEIVERS: Final = "django_zrank.sync.signal_handlers"


def connect(index: RankIndex) -> None:
    """Listen to every model that ``index`` reads, and to their proxies and children.

    A receiver for all senders would be simpler, and would turn off Django's fast deletes in all models.
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
    """Listen for every registered index. One that is declared wrongly is left to ``manage.py check``."""
    for index in registry.all():
        try:
            connect(index)
        except Exception:
            logger.debug("Index %r is declared wrongly", index.name, exc_info=True)


def disconnect(index: RankIndex) -> None:
    """Stop listening for ``index``."""
    for routes in _routes.values():
        routes[:] = [route for route in routes if route.index is not index]


def _routes_from(
    sender: type[models.Model], index: RankIndex, sources: list[WatchedTable]
) -> Iterator[Route]:
    written = [source for source in sources if issubclass(sender, source.model)]
    if issubclass(sender, sources[0].model):  # a member, its parents' rows included
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
    """Once a related row is gone, nothing tells any more who led to it."""
    touched = Touched(using)
    for route in _routes_for(sender, using):
        if route.related is not None and route.key is not None:
            rows = every_row(route.related.model, using).filter(**{route.key.name: instance})
            owners = rows.order_by().values_list(route.related.column.attname, flat=True)
            touched.add_related(route.index, route.related, owners[: touched.limit])
        elif route.related is not None:
            if route.related.via is None:
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
    """Rows of the table between two models are added, or are about to be removed."""
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
    """The rows that lead from ``instance`` to ``others``, None for all."""
    return models.Q((near, instance)) & (models.Q() if others is None else models.Q((f"{far}__in", others)))


def _routes_for(sender: type[models.Model], using: str) -> list[Route]:
    if _disabled.get() or not get_settings().auto_sync:
        return []
    return [route for route in _routes[sender] if route.index.get_using() == using]


def _member(index: RankIndex, instance: models.Model) -> Any:
    """The member that ``instance``, perhaps of a child model, is."""
    # A child out of a fixture knows nothing of its parents but the key that it shares with them.
    return getattr(instance, index.model._meta.pk.attname) or instance.pk
