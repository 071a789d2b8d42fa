"""Removal of remains in the databases and in Redis: of indexes that are no longer registered, or live elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import DatabaseError, connections, router, transaction

from ..builds import RETIRED, TESTS, recorded
from ..capture.triggers import builds_of, departed, drop
from ..declaration import Index
from ..exceptions import CaptureError, IndexUnavailable
from ..extension import installed
from ..models import TABLES, Build, Capture, Mark
from ..registry import registry
from ..store import Store

logger = logging.getLogger("django_zrank.sync")

_MOVED: Final = "moved"
"""The declaration that a database notes once an index has left it: no release has one like it."""

_ROWS: Final = 500
"""Rows that one statement deletes."""


@dataclass
class Leftover:
    """The remains of an index that isn't registered, as counted before they were pruned."""

    index: str

    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """Numbers of ``triggers``, and of rows by the names of :data:`~django_zrank.models.TABLES`, by the alias of the
    database."""

    keys: int = 0
    """The number of keys in Redis."""

    foreign: bool = False
    """True if no database here knows the build in Redis, perhaps another project's. Its keys are kept."""

    pending: int = 0
    """The number of members whose scores in Redis are in no column yet. If there are any, everything is kept."""


def find_leftovers(databases: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Return the names in the tables of ``databases`` (aliases, by default all) that no registered index has, with the
    aliases of the databases that have them."""
    found: dict[str, list[str]] = {}
    registered = _registered()
    for alias in _databases(connections if databases is None else databases):
        names: set[str] = set()
        for model in (*TABLES.values(), Capture):
            rows = model.objects.using(alias).exclude(index__in=registered)
            names.update(rows.order_by().values_list("index", flat=True).distinct())
        for name in sorted(names):
            found.setdefault(name, []).append(alias)
    return found


def find_departed() -> Iterator[tuple[Index, str]]:
    """Yield each index that has moved to another database, where a build of it is live, with the alias of a database
    that still has one."""
    for alias in _databases(connections):
        for index in departed(alias):
            rows = [row for row in builds_of(index, index.get_using()) if row.build not in ("", RETIRED)]
            if rows and all(index.declares(row.build) for row in rows):
                yield index, alias


def prune(name: str, *, foreign: bool = False, dry_run: bool = False) -> Leftover:
    """Remove the remains of an index called ``name``: its keys in Redis, its triggers and rows in every database.

    Keys of a build that no database here knows are kept, because another project may share the server and the prefix;
    and nothing is removed while scores that began in Redis are in no column yet. ``foreign`` removes both. ``dry_run``:
    only count. Rows and keys are deleted in small pieces. If it is killed, it can be run again.

    Raises :exc:`~django_zrank.IndexUnavailable`, :exc:`~django_zrank.exceptions.CaptureError`, and ``ValueError``
    if an index of this name is registered.
    """
    if name in _registered():
        raise ValueError(f"The index {name!r} is registered.")
    left, store, aliases = Leftover(name), Store(name), list(_databases(connections))
    builds = {*filter(None, store.read_meta("build", "building"))}
    left.foreign = bool(builds) and not builds & _known_builds(name, aliases)
    if not (foreign or left.foreign):
        left.pending = sum(one.waiting(store)[0] for one in installed().values())
    if left.pending:
        return left
    if foreign or not left.foreign:
        left.keys = store.unlink_all(dry_run=dry_run)
    for alias in aliases:  # before the rows, because triggers write marks
        if triggers := drop(alias, [name], dry_run=dry_run).dropped:
            left.rows.setdefault(alias, {})["triggers"] = len(triggers)
    for what, model in reversed(TABLES.items()):
        for alias in aliases:
            rows = model.objects.using(alias).filter(index=name)
            if count := rows.count() if dry_run else _delete(rows):
                left.rows.setdefault(alias, {})[what] = count
    if not dry_run:
        for alias in aliases:  # last, as it keeps older releases from creating triggers
            Capture.objects.using(alias).filter(index=name).delete()
    return left


def _registered() -> set[str]:
    """Return the names of all indexes, and of what holds their members."""
    return {holder.name for index in registry.all() for holder in (index, *index.holders)}


def _databases(aliases: Iterable[str]) -> Iterator[str]:
    """Yield those of ``aliases`` whose databases have the app's tables."""
    for alias in aliases:
        if router.allow_migrate_model(alias, Mark):
            connection = connections[alias]
            with connection.cursor() as cursor:
                if Mark._meta.db_table in connection.introspection.table_names(cursor):
                    yield alias


def _known_builds(name: str, aliases: Iterable[str]) -> set[str]:
    """Return the builds that databases note for an index."""
    known: set[str] = set()
    for alias in aliases:
        noted = Build.objects.using(alias).filter(index=name)
        known.update(*noted.values_list("build", "building"))
    return known - {""}


def _delete(rows: Any) -> int:
    """Delete rows by their keys, a few at a time. Return their number."""
    deleted, rest = 0, rows.order_by("pk")
    while pks := list(rest.values_list("pk", flat=True)[:_ROWS]):
        deleted += rows.filter(pk__in=pks)._raw_delete(rows.db)
        rest = rows.order_by("pk").filter(pk__gt=pks[-1])
    return deleted


# Databases that an index had before it was moved


def pending_elsewhere(index: Index) -> tuple[int, str]:
    """Return the number of members whose scores in Redis are pending for another database, and its alias; '' if it is
    not among ``DATABASES``. Holders that can't be reached are left out."""
    pending, owners = 0, set[str]()
    for holder in index.holders:
        with suppress(IndexUnavailable):
            store = Store.of(holder)
            (owner,) = store.read_meta("owner")
            if owner not in ("", TESTS, recorded(holder).owner) and (
                count := sum(one.waiting(store)[0] for one in installed().values())
            ):
                pending += count
                owners.add(owner)
    for alias in connections if owners else ():
        if alias != index.get_using():
            with _reaching(index, alias):
                if not {row.owner for row in builds_of(index, alias)}.isdisjoint(owners):
                    return pending, alias
    return pending, ""


def note_databases(index: Index, owners: Collection[str]) -> None:
    """Note which of the other databases have made the build that is about to be replaced, by their ``owners``."""
    using, found = index.get_using(), set[str]()
    for alias in connections if owners else ():
        if alias != using:
            with _reaching(index, alias):
                if not {row.owner for row in builds_of(index, alias)}.isdisjoint(owners):
                    found.add(alias)
    if found:
        with transaction.atomic(using):
            Capture.objects.using(using).get_or_create(index=index.name)
            row = Capture.objects.using(using).select_for_update().get(index=index.name)
            row.left = sorted(found.union(row.left))
            row.save(using=using, update_fields=["left"])


def leave_databases(index: Index) -> None:
    """Drop the triggers of ``index``, and delete its rows, in the databases that it has left. Its build here is live. A
    database that can't be reached, or whose tables are in use, is left for the next time."""
    rows = Capture.objects.using(index.get_using()).filter(index=index.name)
    left = rows.values_list("left", flat=True).first() or []
    rest = list(left)
    for alias in left:
        with _reaching(index, alias):
            if alias in connections and alias != index.get_using():
                leave(index, alias)
            rest.remove(alias)
    if rest != left:
        rows.update(left=rest)


def leave(index: Index, alias: str, *, dry_run: bool = False) -> dict[str, int]:
    """Remove what a database keeps of an index that has moved to another one. Return what it was. Processes of the
    former release that still run create no triggers afterwards."""
    if not dry_run:
        Capture.objects.using(alias).update_or_create(index=index.name, defaults={"declaration": _MOVED})
    done = {"triggers": len(drop(alias, [index.name], dry_run=dry_run).dropped)}
    names = {index.name, *(row.index for row in builds_of(index, alias))}
    for what, model in reversed(TABLES.items()):
        rows = model.objects.using(alias).filter(index__in=names)
        done[what] = rows.count() if dry_run else _delete(rows)
    return {what: count for what, count in done.items() if count}


@contextmanager
def _reaching(index: Index, alias: str) -> Iterator[None]:
    """Log the errors of another database than that of ``index``, instead of raising them."""
    try:
        yield
    except (CaptureError, DatabaseError) as error:
        logger.info("Index %r: its former database %r was left as it is. %s", index.name, alias, error)
