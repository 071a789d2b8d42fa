"""Capture: triggers that leave a mark for every change that can move a member.

A mark is written in the transaction of the change, so both commit or neither does. A new trigger leaves a mark for all
members, because changes before it went unnoticed.

A database may have triggers that another release, alias or project needs. So a watcher only adds missing ones
(:func:`restore`), ``migrate`` drops those of older declarations (:func:`install`), and those of unknown indexes are
dropped on request only (:func:`drop`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, connections, transaction

from ..conf import get_settings
from ..exceptions import CaptureError
from ..index import RankIndex
from ..models import Generation, Mark
from ..registry import registry
from .dialects import DIALECTS, Capture, Dialect, Trigger, Unit, owner_of
from .transactions import is_delay
from .watched_tables import union, watched_tables

__all__ = [
    "Changes",
    "Status",
    "captured",
    "captures_of",
    "drop",
    "examine_capture",
    "install",
    "release",
    "restore",
    "sharing",
    "status",
    "unwatchable",
]


_PATIENCE: Final = 60.0
"""Seconds for which ``install()`` tries again while tables are locked."""

_PAUSE: Final = 0.5


class Changes(NamedTuple):
    """Changes made to the triggers of a database."""

    created: Sequence[Trigger]
    dropped: Sequence[Trigger]


@dataclass(frozen=True)
class Status:
    """The triggers of a database, compared with those that there should be."""

    mode: str
    """``triggers`` or ``signals``."""

    missing: Sequence[Trigger] = ()
    """Missing, disabled, of an account that is gone, or naming a column that is gone: changes go unnoticed, or fail."""

    outdated: Sequence[Trigger] = ()
    """Of another declaration of these indexes. They cost time, and do no harm."""

    unexpected: Sequence[Trigger] = ()
    """Of indexes that aren't registered: another project's, or removed ones. Nobody drains their marks."""

    error: str | None = None
    """The reason why the database can't have triggers, or why they don't notice everything."""

    @property
    def works(self) -> bool:
        return not (self.missing or self.error)


def captured(using: str) -> list[RankIndex]:
    """Return the registered indexes whose models live in this database."""
    return [index for index in registry.all() if index.get_using() == using]


def sharing(using: str) -> list[RankIndex]:
    """Return the registered indexes whose models live in the same database under another alias, such as a pooler's."""
    own, found = connections[using], []
    # A service's settings may leave out databases that it doesn't use.
    for alias in {index.get_using() for index in registry.all()}.intersection(connections) - {using}:
        other = connections[alias]
        names = {str(connection.settings_dict["NAME"]) for connection in (own, other)}
        if other.vendor in DIALECTS and other.vendor == own.vendor and len(names) == 1:
            with suppress(DatabaseError):  # unreachable: skip it
                one, two = (DIALECTS[own.vendor](connection, []).identity() for connection in (own, other))
                if one == two:
                    found += captured(alias)
    return found


def captures_of(index: RankIndex) -> list[Capture]:
    """Return a capture for each table that ``index`` reads and each path to it."""
    watched: dict[Any, Any] = {}
    for source in watched_tables(index):
        key = source.model, source.via, source.column, source.is_referenced
        watched[key] = union(watched[key], source.fields) if key in watched else source.fields
    return [
        Capture(index.name, model, via, column, fields, is_referenced)
        for (model, via, column, is_referenced), fields in watched.items()
    ]


def status(using: str, indexes: Collection[RankIndex]) -> Status:
    """Compare the triggers of a database with what these indexes ask for.

    MariaDB and MySQL show triggers only to an account that has the TRIGGER privilege.
    """
    mode = get_settings().capture
    dialect, units = _units(using, indexes)
    if dialect is None:
        return Status(mode)
    wanted = {trigger for unit in units for trigger in unit.create}
    found = dialect.installed()
    others = found.keys() - wanted
    owners = _owners(indexes, units)
    known = owners | _owners(registry.all())
    problems = [f"{table} {problem}" for table, problem in sorted(dialect.problems().items())]
    dangling = _dangling(dialect, units, owners)
    return Status(
        mode,
        missing=sorted({trigger for trigger in wanted if not found.get(trigger)} | dangling),
        outdated=sorted(trigger for trigger in others - dangling if trigger.owner in owners),
        unexpected=sorted(trigger for trigger in others if trigger.owner not in known),
        error=f"Triggers can't watch every table: {'; '.join(problems)}." if problems else None,
    )


def unwatchable(using: str, indexes: Collection[RankIndex]) -> Iterator[tuple[RankIndex, str, str]]:
    """Yield each index with a table that triggers can't watch, and the reason."""
    for index in indexes:
        dialect, units = _units(using, [index])
        if dialect is not None and units:
            yield from ((index, table, problem) for table, problem in sorted(dialect.problems().items()))


def examine_capture(index: RankIndex) -> Status:
    """Return the status of the triggers of ``index``, with the error if its database can't have any."""
    try:
        return status(index.get_using(), [index])
    except CaptureError as error:
        return Status(get_settings().capture, error=str(error))


def restore(index: RankIndex) -> Sequence[Trigger]:
    """Restore the missing triggers of ``index``, without dropping others or waiting for locks. Return those created.

    Raises :exc:`~django_zrank.exceptions.CaptureError`.
    """
    dialect, units = _units(index.get_using(), [index])
    if dialect is None:
        return []
    found = dialect.installed()
    obstacles = _obstacles(dialect, found, units)
    if not obstacles and all(_is_in_place(unit, found) for unit in units):
        return []
    with _explained(dialect, units[0].capture.model._meta.db_table), dialect.short_lock_timeout():
        _drop(dialect, obstacles)
        found = {trigger: active for trigger, active in found.items() if trigger not in obstacles}
        return _add(dialect, _possible(dialect, units, found), found)


def install(using: str, indexes: Collection[RankIndex]) -> Changes:
    """Create the triggers that these indexes need in a database, and then drop those that they don't need any more.

    Triggers in place stay untouched, without a lock on their tables. Tables that don't exist yet are skipped. Triggers
    that name a missing column are dropped, and all triggers if there is no table of marks. It never waits long for a
    lock, behind which all later writers would wait, and tries again for ``_PATIENCE`` seconds. Raises
    :exc:`~django_zrank.exceptions.CaptureError`.
    """
    deadline = monotonic() + _PATIENCE
    while True:
        dialect, units = _units(using, indexes)
        if dialect is None:
            return Changes([], [])
        try:
            with dialect.short_lock_timeout():
                return _install(dialect, units, indexes)
        except CaptureError as error:
            is_locked = isinstance(error.__cause__, DatabaseError) and is_delay(error.__cause__)
            if not is_locked or monotonic() >= deadline:
                raise
        sleep(_PAUSE)


def _install(dialect: Dialect, units: list[Unit], indexes: Collection[RankIndex]) -> Changes:
    found = dialect.installed()
    wanted = {trigger for unit in units for trigger in unit.create}
    owners = _owners(indexes, units)
    possible = _possible(dialect, units, found)
    if dialect.columns([Mark._meta.db_table])[Mark._meta.db_table]:
        unwanted = {trigger for trigger in found if trigger.owner in owners} - wanted | dialect.dangling()
    else:
        unwanted = {*found}
    obstacles = _obstacles(dialect, found, units)
    _drop(dialect, obstacles)
    created = _add(dialect, possible, found)
    _drop(dialect, unwanted - obstacles)
    return Changes(created, sorted(unwanted | obstacles))


def drop(using: str, names: Iterable[str] | None = None, *, dry_run: bool = False) -> Changes:
    """Drop the app's triggers in a database: all of them, or those of indexes with these names, without waiting long
    for a lock. ``dry_run``: only return them. Raises :exc:`~django_zrank.exceptions.CaptureError`."""
    owners = None if names is None else {owner_of(name) for name in names}
    dialect, _ = _units(using, [])
    found = dialect.installed() if dialect else {}
    unwanted = sorted(trigger for trigger in found if owners is None or trigger.owner in owners)
    if dialect and unwanted and not dry_run:
        with nullcontext() if owners is None else dialect.short_lock_timeout():
            _drop(dialect, unwanted)
    return Changes([], unwanted)


def release(using: str, columns: Collection[tuple[str, str]]) -> None:
    """Drop the triggers that name one of these columns, ``(table, column)``, which are about to be removed. Raises
    :exc:`~django_zrank.exceptions.CaptureError`."""
    dialect, _ = _units(using, [])
    if dialect is None or not columns:
        return
    if any(table == Mark._meta.db_table for table, _ in columns):
        drop(using)
        return
    leaving: dict[str, set[str]] = {}
    for table, column in columns:
        leaving.setdefault(table, set()).add(dialect.fold(column))
    spelled = {spelling: names for table, names in leaving.items() for spelling in dialect.spell(table)}
    named = {trigger: dialect.named(text) for trigger, text in dialect.texts().items()}
    _drop(dialect, {trigger for trigger in named if named[trigger] & spelled.get(trigger.table, set())})


def _units(using: str, indexes: Iterable[RankIndex]) -> tuple[Dialect | None, list[Unit]]:
    """Return the database's dialect, None if there is none, and the units that these indexes need."""
    connection, captures = connections[using], []
    if get_settings().capture == "triggers":
        captures = [capture for index in indexes for capture in captures_of(index)]
    if connection.vendor in DIALECTS:
        tables = {capture.model._meta.db_table for capture in captures}
        dialect = DIALECTS[connection.vendor](connection, tables)
        return dialect, [dialect.unit(capture) for capture in captures]
    if captures:
        raise CaptureError(
            f"Database {using!r}: there are no triggers for {connection.display_name}. "
            'Set ZRANK = {"CAPTURE": "signals"}.'
        )
    return None, []


def _owners(indexes: Iterable[RankIndex], units: Iterable[Unit] = ()) -> set[str]:
    """Return the owners in the names of these indexes' triggers."""
    return {owner_of(index.name) for index in indexes} | {owner for unit in units for owner in unit.owners}


def _possible(dialect: Dialect, units: list[Unit], found: dict[Trigger, bool]) -> list[Unit]:
    """Return the units that aren't in place, and whose tables and columns exist."""
    lacking = [unit for unit in units if not _is_in_place(unit, found)]
    ours = {Mark._meta.db_table, Generation._meta.db_table}
    columns = dialect.columns({unit.capture.model._meta.db_table for unit in lacking} | ours)
    if not all(columns[table] for table in ours):
        return []
    return [
        unit for unit in lacking if _fits(dialect, unit.capture, columns[unit.capture.model._meta.db_table])
    ]


def _fits(dialect: Dialect, capture: Capture, columns: set[str]) -> bool:
    named = {dialect.fold(str(field.column)) for field in capture.columns}
    return named <= set(map(dialect.fold, columns))


def _is_in_place(unit: Unit, found: dict[Trigger, bool]) -> bool:
    return all(found.get(trigger) for trigger in unit.create)


def _obstacles(dialect: Dialect, found: dict[Trigger, bool], units: Collection[Unit]) -> set[Trigger]:
    """Return the triggers to drop before those of these units are created.

    They have the name of one of them (after two tables have swapped names), fail their tables' writes (because the
    account that created them, or a column that they name, is gone), or were made for another state of the table (a
    former set of partitions, which may return).
    """
    owners = {owner for unit in units for owner in unit.owners}
    wanted = {trigger for unit in units for trigger in unit.create}
    names = {trigger.name for trigger in wanted} if dialect.unique_names else set()
    purposes = {trigger.purpose for trigger in wanted}
    return _dangling(dialect, units, owners) | {
        trigger
        for trigger, active in found.items()
        if (not active and trigger.owner in owners)
        or (trigger not in wanted and (trigger.name in names or trigger.purpose in purposes))
    }


def _dangling(dialect: Dialect, units: Collection[Unit], owners: Collection[str]) -> set[Trigger]:
    """Return the triggers of these owners that name a missing column, if tables have owners who rename columns: those
    of unmanaged models. Migrations drop such triggers themselves, and a look costs queries."""
    if all(unit.capture.model._meta.managed for unit in units):
        return set()
    return {trigger for trigger in dialect.dangling() if trigger.owner in owners}


def _add(dialect: Dialect, units: Iterable[Unit], found: dict[Trigger, bool]) -> list[Trigger]:
    """Create the missing triggers of each unit, and return them."""
    created: list[Trigger] = []
    for unit in units:
        missing = [trigger for trigger in unit.create if not found.get(trigger)]
        _create(dialect, unit, missing)
        created += missing
    return created


def _create(dialect: Dialect, unit: Unit, missing: Sequence[Trigger]) -> None:
    using, table = dialect.connection.alias, unit.capture.model._meta.db_table
    atomic = transaction.atomic(using) if dialect.transactional else nullcontext()
    with _explained(dialect, table), atomic, dialect.connection.cursor() as cursor:
        if unit.seal:
            cursor.execute(dialect.drop(unit.seal))
        for statement in [
            *unit.prepare,
            *(unit.create[trigger] for trigger in missing if trigger != unit.seal),
        ]:
            cursor.execute(statement)
        # A migration may have committed while this waited for the table.
        if not _fits(dialect, unit.capture, dialect.columns([table])[table]):
            raise CaptureError(f"Database {using!r}: {table} has changed while its triggers were made.")
        # For all changes until now, which left no marks.
        Mark.objects.using(using).create(index=unit.capture.index)
        if unit.seal:
            cursor.execute(dialect.seal(unit))


def _drop(dialect: Dialect, triggers: Collection[Trigger]) -> None:
    """Drop triggers, and functions that no trigger uses any more."""
    if not triggers:
        return
    with dialect.connection.cursor() as cursor:
        for trigger in sorted(triggers):
            with _explained(dialect, trigger.table):
                cursor.execute(dialect.drop(trigger))
        for statement in dialect.leftovers():
            cursor.execute(statement)


@contextmanager
def _explained(dialect: Dialect, table: str) -> Iterator[None]:
    """Raise ``CaptureError``, with advice, if the database refuses."""
    try:
        yield
    except DatabaseError as error:
        raise CaptureError(
            f"Database {dialect.connection.alias!r} refuses to change triggers of {table}: "
            f"{str(error).strip()}. {dialect.advice} Or do without: set ZRANK = "
            '{"CAPTURE": "signals"}, whose gaps are documented.'
        ) from error
