"""Capture: triggers that leave a mark for every change that can move a member, whatever made it.

A mark is written in the transaction of the change, so both commit or neither does. Changes made while no
trigger watched are not lost either: the trigger that comes too late leaves a mark for all members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.migrations.operations import RemoveField, RenameField

from ..conf import get_settings
from ..exceptions import CaptureError
from ..models import Mark
from ..registry import registry
from .dialects import CHANNEL, DIALECTS, LISTENING, Capture, Dialect, Trigger, Unit
from .sources import sources_of

if TYPE_CHECKING:
    from django.db.migrations import Migration

    from ..index import RankIndex

__all__ = [
    "CHANNEL",
    "LISTENING",
    "Changes",
    "Status",
    "captured",
    "captures_of",
    "drop",
    "install",
    "release",
    "renew",
    "status",
]


class Changes(NamedTuple):
    """What was done to the triggers of a database."""

    created: Sequence[Trigger]
    dropped: Sequence[Trigger]


@dataclass(frozen=True)
class Status:
    """The triggers of a database against those that there should be."""

    missing: Sequence[Trigger]
    """Not there, or disabled."""

    outdated: Sequence[Trigger]
    """Missing, with an older version in their place."""

    unexpected: Sequence[Trigger]
    """Ours, and not wanted any more."""

    def __bool__(self) -> bool:
        """Whether there is anything amiss."""
        return bool(self.missing or self.outdated or self.unexpected)


def captured(using: str) -> list[RankIndex]:
    """The registered indexes whose changes triggers write down in this database."""
    if get_settings().capture != "triggers":
        return []
    return [index for index in registry.all() if index.get_using() == using]


def captures_of(index: RankIndex) -> list[Capture]:
    """Each table that ``index`` reads, once for each way that leads to it."""
    captures: dict[object, Capture] = {}
    for source in sources_of(index):
        capture = Capture(index.name, source.model, source.via, source.column, source.fields)
        same = captures.get(key := (source.model, source.via, source.column))
        if same is not None:
            either = None if None in (same.watched, capture.watched) else same.watched | capture.watched  # type: ignore[operator]
            capture = replace(capture, watched=either)
        captures[key] = capture
    return list(captures.values())


def status(using: str, indexes: Iterable[RankIndex]) -> Status:
    """Compare the triggers of a database with what these indexes, all that live in it, ask for.

    MariaDB and MySQL show triggers only to an account that has the TRIGGER privilege.
    """
    dialect, units = _units(using, indexes)
    if dialect is None:
        return Status([], [], [])
    wanted = {trigger for unit in units for trigger in unit.create}
    found = dialect.installed()
    others = {trigger.purpose for trigger in found.keys() - wanted}
    lacking = sorted(trigger for trigger in wanted if not found.get(trigger))
    wishes = {trigger.purpose for trigger in lacking}
    return Status(
        missing=[trigger for trigger in lacking if trigger.purpose not in others],
        outdated=[trigger for trigger in lacking if trigger.purpose in others],
        unexpected=sorted(trigger for trigger in found.keys() - wanted if trigger.purpose not in wishes),
    )


def install(using: str, indexes: Iterable[RankIndex]) -> Changes:
    """Make the triggers of a database those that these indexes, all that live in it, ask for.

    What is in place stays untouched, without a lock on its table. New triggers are made before old ones go.
    A table that isn't there yet, as in the middle of a migration, is left out; without the table of marks no
    trigger is left. Raises :exc:`~django_zrank.exceptions.CaptureError`.
    """
    dialect, units = _units(using, indexes)
    if dialect is None:
        return Changes([], [])
    found = dialect.installed()
    units = _possible(dialect, units, found)
    wanted = {trigger for unit in units for trigger in unit.create}
    unwanted = sorted(found.keys() - wanted)
    # A name that a trigger of another table has (tables can be renamed) is free when that one is dropped.
    names = {trigger.name for trigger in wanted}
    _drop(dialect, [trigger for trigger in unwanted if trigger.name in names])
    created: list[Trigger] = []
    for unit in units:
        if not _is_in_place(unit, found):
            missing = [trigger for trigger in unit.create if not found.get(trigger)]
            _create(dialect, unit, missing)
            created += missing
    _drop(dialect, [trigger for trigger in unwanted if trigger.name not in names])
    return Changes(created, unwanted)


def drop(using: str) -> Changes:
    """Remove every trigger of ours from a database. Raises :exc:`~django_zrank.exceptions.CaptureError`."""
    return install(using, [])


def release(*, using: str, plan: Sequence[tuple[Migration, bool]] = (), **kwargs: Any) -> None:
    """Before migrations: drop the triggers that they would trip over, or that would trip over them.

    A trigger whose column is dropped or renamed fails every write of its table (on SQLite it fails the
    migration). If current code still wants that column, the plan tells; else the trigger is outdated.
    """
    dialect, units = _units(using, captured(using))
    if dialect is None or not plan:
        return
    found = dialect.installed()
    if not _breaks(plan, [unit.capture for unit in units], dialect):
        found = dict.fromkeys(found.keys() - {wish for unit in units for wish in unit.create}, True)
    _drop(dialect, found)


def renew(*, using: str, **kwargs: Any) -> None:
    """After migrations: install what the registered indexes ask for."""
    install(using, captured(using))


def _breaks(plan: Sequence[tuple[Migration, bool]], captures: Sequence[Capture], dialect: Dialect) -> bool:
    """Whether a migration of ``plan`` may take away what triggers of these captures name."""
    named = {field for capture in captures for field in capture.columns}
    labels = {field.model._meta.app_label for field in named}
    for migration, backwards in plan:
        if migration.app_label == Mark._meta.app_label and (backwards or dialect.remakes_tables):
            return True
        if migration.app_label in labels and backwards:
            return True
        for operation in migration.operations:
            if isinstance(operation, (RemoveField, RenameField)) and any(
                operation.references_field(str(field.model._meta.model_name), field.name, migration.app_label)
                for field in named
                if field.model._meta.app_label == migration.app_label
            ):
                return True
    return False


def _units(using: str, indexes: Iterable[RankIndex]) -> tuple[Dialect | None, list[Unit]]:
    """The database's dialect, if it has one, and what these indexes ask for in it."""
    connection = connections[using]
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


def _possible(dialect: Dialect, units: list[Unit], found: dict[Trigger, bool]) -> list[Unit]:
    """The units that are in place, or whose tables and columns are there."""
    lacking = {unit.capture.model._meta.db_table for unit in units if not _is_in_place(unit, found)}
    columns = dialect.columns([*lacking, Mark._meta.db_table])
    if not columns[Mark._meta.db_table]:
        return []
    return [
        unit
        for unit in units
        if unit.capture.model._meta.db_table not in lacking
        or columns[unit.capture.model._meta.db_table] >= {field.column for field in unit.capture.columns}
    ]


def _is_in_place(unit: Unit, found: dict[Trigger, bool]) -> bool:
    return all(found.get(trigger) for trigger in unit.create)


def _create(dialect: Dialect, unit: Unit, missing: Sequence[Trigger]) -> None:
    using = dialect.connection.alias
    atomic = transaction.atomic(using) if dialect.transactional else nullcontext()
    with _explained(dialect, missing[0]), atomic, dialect.connection.cursor() as cursor:
        for statement in [*unit.prepare, *(unit.create[trigger] for trigger in missing)]:
            cursor.execute(statement)
        # Whatever was written until now left none.
        Mark.objects.using(using).create(index=unit.capture.index)


def _drop(dialect: Dialect, triggers: Iterable[Trigger]) -> None:
    """Drop triggers, and functions that are no trigger's any more."""
    with dialect.connection.cursor() as cursor:
        for trigger in sorted(triggers):
            with _explained(dialect, trigger):
                cursor.execute(dialect.drop(trigger))
        for statement in dialect.leftovers():
            cursor.execute(statement)


@contextmanager
def _explained(dialect: Dialect, trigger: Trigger) -> Iterator[None]:
    """Say what to do where the database refuses."""
    try:
        yield
    except DatabaseError as error:
        raise CaptureError(
            f"Database {dialect.connection.alias!r} refuses to change triggers of {trigger.table}: "
            f"{str(error).strip()}. {dialect.advice} Or do without: set ZRANK = "
            '{"CAPTURE": "signals"}, whose gaps are documented.'
        ) from error
