"""Removal of the remains, in the databases and in Redis, of indexes that are no longer registered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections, router

from ..models import Batch, Generation, Job, Mark
from ..registry import registry
from ..store import Store
from .triggers import drop

__all__ = ["Leftover", "find_leftovers", "prune"]

_KEYS: Final = 500
"""Keys of one SCAN or UNLINK: a fraction of a millisecond of the server's time, whatever the keys hold."""

_TABLES: Final[dict[str, Any]] = {
    "marks": Mark,
    "batches": Batch,
    "jobs": Job,
    "generations": Generation,
}
"""Generations come last: by them, the index is found."""

_ROWS: Final = 500
"""Rows that one statement deletes."""


@dataclass
class Leftover:
    """The remains of an index that isn't registered, as counted before they were pruned."""

    index: str

    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the alias of a database, how many ``triggers``, ``marks``, ``batches``, ``jobs`` and ``generations``."""

    keys: int = 0
    """The number of keys in Redis."""

    foreign: bool = False
    """Redis holds a build of that name that no database here knows: perhaps another project's. Its keys are left."""

    pending: int = 0
    """The number of members whose scores in Redis are in no column yet. All is left."""


def find_leftovers(databases: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The names that rows are left of and no registered index has, with the aliases of the databases that have them.

    ``databases``: the aliases to look at, by default all.
    """
    found: dict[str, list[str]] = {}
    registered = _registered()
    for alias in _databases(connections if databases is None else databases):
        names: set[str] = set()
        for model in _TABLES.values():
            rows = model.objects.using(alias).exclude(index__in=registered)
            names.update(rows.order_by().values_list("index", flat=True).distinct())
        for name in sorted(names):
            found.setdefault(name, []).append(alias)
    return found


def prune(name: str, *, foreign: bool = False, dry_run: bool = False) -> Leftover:
    """Remove what an index called ``name`` has left: its keys in Redis, its triggers and rows in every database.

    Keys of a build that no database here knows are left, unless ``foreign``: another project may share the server
    and the prefix. If scores that began in Redis are in no column yet, nothing is removed, unless ``foreign``.
    ``dry_run``: only count. In pieces: neither Redis nor a writer of marks waits for it. Killed anywhere, it can be run
    again: the generations, by which the index is found, go last.

    Raises :exc:`~django_zrank.IndexUnavailable`, :exc:`~django_zrank.exceptions.CaptureError`, and ``ValueError``
    where an index of this name is registered.
    """
    if name in _registered():
        raise ValueError(f"The index {name!r} is registered.")
    left, store, aliases = Leftover(name), Store(name), list(_databases(connections))
    builds = set(store.builds())
    left.foreign = bool(builds) and not builds & _known_builds(name, aliases)
    if not (foreign or left.foreign):
        left.pending, _ = store.waiting()
    if left.pending:
        return left
    if foreign or not left.foreign:
        for keys in store.scan_keys(_KEYS):
            left.keys += len(keys) if dry_run else store.unlink(keys)
    for alias in aliases:  # before the rows: they go on writing marks
        if triggers := drop(alias, [name], dry_run=dry_run).dropped:
            left.rows.setdefault(alias, {})["triggers"] = len(triggers)
    for what, model in _TABLES.items():
        for alias in aliases:
            rows = model.objects.using(alias).filter(index=name)
            if count := rows.count() if dry_run else _delete(rows):
                left.rows.setdefault(alias, {})[what] = count
    return left


def _registered() -> set[str]:
    """The names of all indexes, and of their shards."""
    indexes = registry.all()
    return {index.name for index in indexes} | {part.name for index in indexes for part in index.parts}


def _databases(aliases: Iterable[str]) -> Iterator[str]:
    """Those of ``aliases`` whose databases have the app's tables."""
    for alias in aliases:
        if router.allow_migrate_model(alias, Mark):
            connection = connections[alias]
            with connection.cursor() as cursor:
                if Mark._meta.db_table in connection.introspection.table_names(cursor):
                    yield alias


def _known_builds(name: str, aliases: Iterable[str]) -> set[str]:
    """The generations that databases note for an index."""
    known: set[str] = set()
    for alias in aliases:
        noted = Generation.objects.using(alias).filter(index=name)
        known.update(*noted.values_list("generation", "building"))
    return known - {""}


def _delete(rows: Any) -> int:
    """Delete rows by their keys, a few at a time. Returns how many there were."""
    deleted, last = 0, None
    while True:
        after = rows.order_by("pk") if last is None else rows.order_by("pk").filter(pk__gt=last)
        pks = list(after.values_list("pk", flat=True)[:_ROWS])
        if not pks:
            return deleted
        deleted += rows.filter(pk__in=pks)._raw_delete(rows.db)
        last = pks[-1]
