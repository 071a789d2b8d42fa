"""The members that a transaction touched, pushed once after its commit."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final

from django.db import connections, models, transaction

from ..conf import get_settings
from ..exceptions import IndexUnavailable
from ..index import RankIndex
from ..models import Mark
from ..recent import Recent
from ..redis.isolation import may_use_redis
from ..store import Store
from .drain import drain_soon
from .flush import flush_soon
from .push import try_push
from .transactions import belongs_to
from .watched_tables import WatchedTable

__all__ = ["LIMIT", "Route", "Touched"]

logger = logging.getLogger("django_zrank.sync")

LIMIT: Final = 1000
"""The most members of an index that a transaction pushes, because its caller waits. All others wait for a drain."""

_BUDGET: Final = 1.0
"""Seconds after which no further push or drain is begun for a caller, whatever the number of indexes."""


@dataclass(frozen=True)
class Route:
    """The effect of a save or delete of one model on one index."""

    index: RankIndex

    related: WatchedTable | None
    """The table of the row, if that is not a member itself."""

    sources: tuple[WatchedTable, ...]
    """The tables that a save writes."""

    key: models.Field[Any, Any] | None = None
    """The foreign key of ``related`` whose target is deleted, if that changes rows without a signal."""

    def touched_by(self, update_fields: frozenset[str] | None) -> bool:
        return any(source.touched_by(update_fields) for source in self.sources)


_watched: Recent[bool] = Recent()
"""By index: whether a watcher keeps it in step."""


def _has_watcher(index: RankIndex) -> bool:
    """Return True if a watcher processes marks, so that a request need not. The answer is kept for a second."""
    known = _watched.get(index.name)
    if known is None:
        known = False
        with suppress(IndexUnavailable):
            known = Store.of(index.parts[0]).has_watcher()
        _watched.keep(index.name, known)
    return known


class Touched:
    """The members that one transaction touched, at most ``LIMIT``, pushed once after its commit."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.texts: dict[tuple[RankIndex, WatchedTable | None], set[str]] = defaultdict(set)
        """Members; and of related rows, the values that lead to members, by their tables."""

        self.limit = None if get_settings().capture == "signals" else LIMIT
        """The most of each that are kept. None with ``CAPTURE = "signals"``, where marks are made of them."""

    def add(self, route: Route, instance: models.Model) -> None:
        """Add a row that was saved, or a member that was deleted."""
        if route.related is None:
            # An instance of a child model that comes from a fixture has only its own key, which its parents share.
            pk = getattr(instance, route.index.model._meta.pk.attname) or instance.pk
            self.add_members(route.index, [pk])
        else:
            self.add_related(route.index, route.related, [route.related.value_of(instance, self.using)])

    def add_related(self, index: RankIndex, source: WatchedTable, owners: Iterable[Any]) -> None:
        """Add rows that changed, by the values of ``source.column``."""
        if source.via is None:
            self.add_members(index, owners)
        else:
            self._keep(self.texts[index, source], owners, source.text_of)

    def add_members(self, index: RankIndex, pks: Iterable[Any]) -> None:
        self._keep(self.texts[index, None], pks, index.to_text)

    def _keep(self, kept: set[str], values: Iterable[Any], to_text: Callable[[Any], str]) -> None:
        """Keep the texts of ``values``, reading no more than fit."""
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
            for kept in self.texts.values():
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
        # else: with autocommit off, Django doesn't know when the caller commits.

    def marks(self) -> Iterator[Mark]:
        """Yield the marks that triggers would leave, for databases that forbid them."""
        for (index, source), texts in self.texts.items():
            via = source.via if source else None
            yield from (Mark(index=index.name, via=via, member=text) for text in texts)

    def merge(self, other: Touched) -> None:
        for key, texts in other.texts.items():
            self._keep(self.texts[key], texts, str)

    def push(self) -> None:
        """Push the members of each index, even if another one fails, until the time of the caller is up."""
        if not may_use_redis():
            return
        until = monotonic() + _BUDGET
        for index in dict.fromkeys(index for index, _ in self.texts):
            if monotonic() >= until:  # its marks wait for a drain
                logger.warning(
                    "Index %r: not pushed, as Redis was slow to answer for other indexes", index.name
                )
                continue
            try:
                if not try_push(index, self.members_of(index)) or _has_watcher(index):
                    continue
                if monotonic() < until:
                    drain_soon(index)
                    flush_soon(index)
            except Exception:  # the transaction is committed, so nothing may be raised
                logger.exception("Index %r: changes of a transaction were not pushed", index.name)

    def members_of(self, index: RankIndex) -> set[Any]:
        """Return the primary keys of the members of ``index`` that were touched, at most ``LIMIT``."""
        texts = islice(self.texts.get((index, None), ()), LIMIT)
        pks = set(map(index.from_text, texts))
        for (other, source), owners in self.texts.items():
            if source and other is index and len(pks) < LIMIT:
                pks.update(source.members_at(owners, self.using, LIMIT - len(pks)))
        return pks
