"""Model signals: the members that a transaction touches are pushed once, after its commit."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeAlias

from django.apps import apps
from django.db import connections, models, transaction
from django.db.models.signals import m2m_changed, post_save, pre_delete, pre_save

from ..capture import told
from ..capture.triggers import fully_captured
from ..capture.watched_tables import WatchedTable, every_row, watched_tables
from ..codec.kinds import key_kind
from ..conf import get_settings
from ..declaration import Index
from ..extension import declared
from ..models import SEVERAL, Mark
from ..recent import Recent
from ..redis.isolation import may_use_redis
from ..registry import registry
from ..transactions import belongs_to, is_begun
from .drain import drain_soon
from .marks import newest_marks
from .push import try_push
from .upkeep import work_soon

logger = logging.getLogger("django_zrank.sync")

LIMIT: Final = 1000
"""The most members of an index that a transaction pushes, because its caller waits. All others wait for a drain."""

_BUDGET: Final = 1.0
"""Seconds after which no further push or drain is begun for a caller, whatever the number of indexes."""

_RECEIVERS: Final = "django_zrank.sync.signal_handlers"

_helped: Recent[bool] = Recent()
"""By name: the indexes of which marks of others were waiting lately, when a save had left none."""

_asked: Recent[bool] = Recent()
"""The databases that this process has lately asked for waiting marks."""

_disabled: ContextVar[bool] = ContextVar("django_zrank_sync_disabled", default=False)


@contextmanager
def disable_sync() -> Iterator[None]:
    """Don't push what is saved or deleted in this block, by the current thread or task."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


@dataclass(frozen=True)
class Route:
    """The effect of a save or delete of one model on one index."""

    index: Index

    source: WatchedTable
    """The table of the row."""

    key: models.Field[Any, Any] | None = None
    """The foreign key of ``source`` whose target is deleted, if that changes rows without a signal."""


_routes: dict[type[models.Model], list[Route]] = defaultdict(list)


def connect(index: Index) -> None:
    """Listen to every model that ``index`` reads, and to their proxies and children.

    A single receiver for all senders would turn off Django's fast deletes of all models.
    """
    sources = watched_tables(index)
    for sender in apps.get_models(include_auto_created=True):
        routes = list(_routes_from(sender, index, sources))
        if routes:
            _routes[sender].extend(routes)
            pre_save.connect(_saving, sender=sender, dispatch_uid=_RECEIVERS)
            post_save.connect(_saved, sender=sender, dispatch_uid=_RECEIVERS)
            pre_delete.connect(_deleting, sender=sender, dispatch_uid=_RECEIVERS)
            m2m_changed.connect(_related, sender=sender, dispatch_uid=_RECEIVERS)


def connect_all() -> None:
    """Listen for every registered index. Invalid declarations are left to ``manage.py check``."""
    for index in registry.all():
        try:
            connect(index)
        except Exception:
            logger.debug("Index %r has an invalid declaration", index.name, exc_info=True)


def disconnect(index: Index) -> None:
    for routes in _routes.values():
        routes[:] = [route for route in routes if route.index is not index]


def _routes_from(sender: type[models.Model], index: Index, sources: list[WatchedTable]) -> Iterator[Route]:
    for source in sources:
        if issubclass(sender, source.model):
            yield Route(index, source)
        for key in source.model._meta.fields if source.fields is None else source.fields:
            if _changes_silently(source.model, key) and issubclass(sender, key.related_model):  # type: ignore[arg-type]
                yield Route(index, source, key)


def _changes_silently(model: type[models.Model], key: models.Field[Any, Any]) -> bool:
    """Return True if deleting the target of ``key`` may change rows of ``model`` without a signal."""
    if not isinstance(key, models.ForeignKey):
        return False
    kept = (models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING)
    return bool(model._meta.auto_created) or key.remote_field.on_delete not in kept


def _routes_for(sender: type[models.Model], using: str) -> list[Route]:
    if _disabled.get() or not get_settings().auto_sync:
        return []
    return [route for route in _routes[sender] if route.index.get_using() == using]


def _saving(sender: type[models.Model], instance: models.Model, using: str, **kwargs: Any) -> None:
    """Note where the save begins: another receiver may save further rows before :func:`_saved` is called."""
    instance._state.zrank_heard = told.heard(connections[using])  # type: ignore[attr-defined]


def _saved(
    sender: type[models.Model],
    instance: models.Model,
    using: str,
    created: bool = False,
    update_fields: frozenset[str] | None = None,
    **kwargs: Any,
) -> None:
    touched = Touched(using)
    touched.asks = not created and update_fields is None
    for route in _routes_for(sender, using):
        if route.key is None and route.source.touched_by(update_fields):
            touched.add(route, [route.source.value_of(instance, using)])
    if touched.texts:
        touched.since = told.last_taken(connections[using], getattr(instance._state, "zrank_heard", None))
    touched.push_on_commit()


def _deleting(sender: type[models.Model], instance: models.Model, using: str, **kwargs: Any) -> None:
    """Collect the members that a row leads to before it is deleted. Django deletes in a transaction."""
    touched = Touched(using)
    for route in _routes_for(sender, using):
        source = route.source
        if route.key is not None:
            touched.add_column(route, every_row(source.model, using).filter(**{route.key.name: instance}))
        elif source.via is None:
            touched.add(route, [source.value_of(instance, using)])
        else:
            touched.add_members(route.index, source.members_of(instance, using, touched.limit))
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
    routes = [route for route in _routes_for(sender, using) if route.key is None]
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
    touched = Touched(using)
    for route in routes:
        touched.add_column(route, every_row(sender, using).filter(between))
    touched.push_on_commit()


def _between(near: str, instance: models.Model, far: str, others: set[Any] | None) -> models.Q:
    """Return the condition for rows from ``instance`` to ``others``, None for all."""
    return models.Q((near, instance)) & (models.Q() if others is None else models.Q((f"{far}__in", others)))


Texts: TypeAlias = dict[tuple[Index, WatchedTable | None], set[str]]
"""Members; and of related rows, the values that lead to members, by their tables."""


class Touched:
    """The members that one transaction touched, at most ``LIMIT``, pushed once after its commit."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.texts: Texts = defaultdict(set)

        self.asks = False
        """True if a save may have changed nothing that an index reads, so that querying the marks first pays off.
        Inserts and deletes always leave marks, and saves with ``update_fields`` nearly always do."""

        self.since: told.Heard | None = None
        """The messages that the connection had got before the first save: if there are no more when this is pushed, no
        statement of the transaction has left marks. None if nobody would have told."""

        self.at = monotonic()
        """The time of the last write that is known, by the clock of the process: the commit comes later, or has just
        come."""

        self.limit = None if get_settings().capture == "signals" else LIMIT
        """The most of each that are kept. None with ``CAPTURE = "signals"``, where marks are made of them."""

    def add(self, route: Route, values: Iterable[Any]) -> None:
        """Add rows that changed, by their values of ``source.column``."""
        if route.source.via is None:
            self.add_members(route.index, values)
        else:
            self._keep((route.index, route.source), values, route.source.text_of)

    def add_column(self, route: Route, rows: models.QuerySet[Any]) -> None:
        self.add(route, rows.order_by().values_list(route.source.column.attname, flat=True)[: self.limit])

    def add_members(self, index: Index, pks: Iterable[Any]) -> None:
        self._keep((index, None), pks, index.to_text)

    def _keep(
        self,
        key: tuple[Index, WatchedTable | None],
        values: Iterable[Any],
        to_text: Callable[[Any], str],
    ) -> None:
        """Keep the texts of ``values``, reading no more than fit."""
        kept = self.texts[key]
        if self.limit is not None:
            values = islice(values, max(self.limit - len(kept), 0))
        for value in values:
            # Skip nulls, and values that can't be a member's key.
            with suppress(ValueError):
                if value is not None:
                    kept.add(to_text(value))

    def push_on_commit(self) -> None:
        """Merge this into what the transaction has touched so far, or register a commit hook.

        Django drops the hooks that a rollback undoes from the connection's list. A hook that is still there can only be
        dropped together with the changes made since, so this may be merged into any.
        """
        if not any(self.texts.values()):
            return
        if self.limit is None:
            Mark.objects.using(self.using).bulk_create(self.marks(), batch_size=LIMIT)
            self.limit = LIMIT
            for key, texts in self.texts.items():
                self.texts[key] = set(islice(texts, LIMIT))
        connection = connections[self.using]
        for savepoints, hook, *_ in connection.run_on_commit:
            first = getattr(hook, "__self__", None)
            if isinstance(first, Touched) and belongs_to(connection, savepoints):
                for key, texts in self.texts.items():
                    first._keep(key, texts, str)
                first.asks, first.at = first.asks or self.asks, self.at
                return
        if connection.in_atomic_block or connection.get_autocommit():
            transaction.on_commit(self.push, using=self.using, robust=True)
        # else: with autocommit off, Django doesn't know when the caller commits.

    def marks(self) -> Iterator[Mark]:
        """Yield the marks that triggers would leave, for databases that forbid them."""
        for (index, source), texts in self.texts.items():
            via = source.via if source else None
            yield from (Mark(index=index.name, via=via, member=text) for text in texts)

    def push(self) -> None:
        """Push the members that marks name, of all indexes together, and drain the indexes that nobody else drains,
        until the time of the caller is up."""
        if not may_use_redis() or is_begun(connections[self.using]):  # what this reads may be rolled back
            return
        until = monotonic() + _BUDGET
        texts = self.marked()
        if not texts:
            return
        indexes = list(dict.fromkeys(index for index, _ in texts))
        written: list[Index] = []
        try:
            members = {index: self.members_of(index, texts) for index in indexes}
            written = try_push(members, saved=self.at, until=until)
        except Exception:  # noqa: BLE001 - perhaps of one declaration: the others are pushed without it
            for index in indexes:
                with _logging(index):
                    members = {index: self.members_of(index, texts)}
                    written += try_push(members, saved=self.at, until=until)
        for index in written:
            with _logging(index):
                if monotonic() < until:
                    drain_soon(index)
                    work_soon(index)

    def marked(self) -> Texts:
        """Return ``texts`` without the members that no mark names: their rows have not changed, or a drain has written
        them to Redis and then deleted their marks.

        Nothing is left out of an index that isn't fully captured, nor of one with extensions, whose work a save also
        does; nor if the database can't say which marks wait."""
        try:
            is_told = told.take(connections[self.using], self.since)
            indexes = {index for index, _ in self.texts if not declared(index)}
            captured = fully_captured(self.using, indexes) if self.asks else set()
            if captured and is_told is False and _asked.get(self.using):
                return {key: texts for key, texts in self.texts.items() if key[0] not in captured}
            if captured and is_told and all(len(texts) == 1 for texts in self.texts.values()):
                return self.texts
            newest = newest_marks(self.using) if captured else None
            if captured:
                _asked.keep(self.using, True)
                told.listen(connections[self.using])
        except Exception:
            logger.debug("Database %r doesn't say which marks wait", self.using, exc_info=True)
            newest = None
        if newest is None:
            return self.texts
        marks: dict[str, list[tuple[str | None, str | None]]] = defaultdict(list)
        for name, via, member in newest:
            marks[name].append((via, member))
        found = {
            (index, source): _waiting(index, source, texts, marks[index.name]) if index in captured else texts
            for (index, source), texts in self.texts.items()
        }
        for index in captured - {index for (index, _), texts in found.items() if texts}:
            # A push shows if a watcher is alive; without one, it also drains the marks of others.
            if marks[index.name] and not _helped.get(index.name):
                _helped.keep(index.name, True)
                found |= {key: texts for key, texts in self.texts.items() if key[0] is index}
        return {key: texts for key, texts in found.items() if texts}

    def members_of(self, index: Index, texts: Texts) -> set[Any]:
        """Return the primary keys of the members of ``index`` that ``texts`` lead to, at most ``LIMIT``."""
        pks = set(map(index.from_text, islice(texts.get((index, None), ()), LIMIT)))
        for (other, source), owners in texts.items():
            if source and other is index and len(pks) < LIMIT:
                pks.update(source.members_at(owners, self.using, LIMIT - len(pks)))
        return pks


def _waiting(
    index: Index,
    source: WatchedTable | None,
    texts: set[str],
    marks: Iterable[tuple[str | None, str | None]],
) -> set[str]:
    """Return those of ``texts`` for which one of the ``marks`` of ``index`` may wait."""
    column, via = (source.column, source.via) if source else (index.model._meta.pk, None)
    to_text = source.text_of if source else index.from_text
    found: set[str] = set()
    for path, member in marks:
        # A mark for everybody, or for many. A member of a related row, whose mark may have been replaced by those of
        # its members.
        # And text, which the database may spell differently: by its collation, "BOB" finds "bob".
        if (
            member is None
            or path == SEVERAL
            or (path is None and via)
            or (path == via and key_kind(column).is_text)
        ):
            return texts
        if path == via:
            with suppress(ValueError):
                found.add(str(to_text(member)))
    return found & texts


@contextmanager
def _logging(index: Index) -> Iterator[None]:
    """Log what is raised in this block. The transaction is committed, so nothing may be raised."""
    try:
        yield
    except Exception:
        logger.exception("Index %r: changes of a transaction were not pushed", index.name)
