"""Capture: triggers that leave a mark for every change that can move a member.

A mark is written in the transaction of the change, so both commit or neither does. A new trigger leaves a mark for all
members, because changes before it went unnoticed.

A database may have triggers that another release, alias or project needs. So a watcher only adds missing ones
(:func:`restore`), ``migrate`` drops those of older declarations (:func:`install`), and those of unknown indexes are
dropped on request only (:func:`drop`). During ``migrate``, triggers are dropped with the columns that they name
(:func:`guard`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.operations import RunPython, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.utils.functional import cached_property  # takes no lock, as that of Python 3.11 does

from ..conf import get_settings
from ..exceptions import CaptureError
from ..index import RankIndex
from ..models import Generation, Mark
from ..registry import registry
from .dialects import DIALECTS, Trigger, Unit, owner_of
from .transactions import is_delay
from .watched_tables import WatchedTable, merged, watched_tables

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


class _Triggers:
    """The triggers that some indexes need in a database, and those that it has."""

    def __init__(self, using: str, indexes: Collection[RankIndex]) -> None:
        sources: list[WatchedTable] = []
        if get_settings().capture == "triggers":
            for index in indexes:  # one trigger for several paths to the same rows
                sources += merged(
                    watched_tables(index), lambda one: (one.model, one.via, one.column, one.is_referenced)
                )
        self.using, connection = using, connections[using]
        self.dialect = DIALECTS[connection.vendor](connection, {source.table for source in sources})
        self.units = [self.dialect.unit(source) for source in sources]
        self.wanted = {trigger for unit in self.units for trigger in unit.create}
        self.owners = {owner_of(index.name) for index in indexes}

    @cached_property
    def found(self) -> dict[Trigger, bool]:
        return self.dialect.installed()

    @cached_property
    def dangling(self) -> set[Trigger]:
        """Triggers that name a missing column, if tables have owners who rename columns: those of unmanaged models.
        Migrations drop such triggers themselves, and a look costs queries."""
        if all(unit.source.model._meta.managed for unit in self.units):
            return set()
        return {trigger for trigger in self.dialect.dangling() if trigger.owner in self.owners}

    def is_in_place(self, unit: Unit) -> bool:
        return all(self.found.get(trigger) for trigger in unit.create)

    def obstacles(self) -> set[Trigger]:
        """Return the triggers to drop before missing ones are created.

        They have the name of one of them (after two tables have swapped names), fail their tables' writes (because the
        account that created them, or a column that they name, is gone), or were made for another state of the table (a
        former set of partitions, or a table that had its name, which may return).
        """
        names = {trigger.name for trigger in self.wanted} if self.dialect.unique_names else set()
        purposes = {trigger.purpose for trigger in self.wanted}
        former = self.dangling | self.dialect.displaced(unit.source for unit in self.units)
        return former | {
            trigger
            for trigger, active in self.found.items()
            if (not active and trigger.owner in self.owners)
            or (trigger not in self.wanted and (trigger.name in names or trigger.purpose in purposes))
        }

    def add(self) -> list[Trigger]:
        """Create the missing triggers of tables and columns that exist, without obstacles. Return them."""
        obstacles = self.obstacles()
        self.drop(obstacles)
        for trigger in obstacles:
            self.found.pop(trigger, None)
        created: list[Trigger] = []
        lacking = [unit for unit in self.units if not self.is_in_place(unit)]
        if lacking and all(self.dialect.has(model._meta.db_table, ["index"]) for model in (Mark, Generation)):
            for unit in filter(self.fits, lacking):
                missing = [trigger for trigger in unit.create if not self.found.get(trigger)]
                self.create(unit, missing)
                created += missing
        return created

    def fits(self, unit: Unit) -> bool:
        """Return True if all columns exist that a unit names."""
        return self.dialect.has(unit.source.table, [str(field.column) for field in unit.source.columns])

    def create(self, unit: Unit, missing: Iterable[Trigger]) -> None:
        dialect, table = self.dialect, unit.source.table
        atomic = transaction.atomic(self.using) if dialect.transactional else nullcontext()
        with self.explained(table), atomic, dialect.connection.cursor() as cursor:
            if unit.seal:
                cursor.execute(dialect.drop(unit.seal))
            for statement in unit.prepare:
                cursor.execute(statement)
            for trigger in missing:
                if trigger != unit.seal:
                    cursor.execute(unit.create[trigger])
            # A migration may have committed while this waited for the table.
            if not self.fits(unit):
                raise CaptureError(
                    f"Database {self.using!r}: {table} has changed while its triggers were made."
                )
            # For all changes until now, which left no marks.
            Mark.objects.using(self.using).create(index=unit.source.index)
            if unit.seal:
                cursor.execute(dialect.seal(unit))

    def drop(self, triggers: Collection[Trigger]) -> None:
        """Drop triggers, and functions that no trigger uses any more."""
        if not triggers:
            return
        with self.dialect.connection.cursor() as cursor:
            for trigger in sorted(triggers):
                with self.explained(trigger.table):
                    cursor.execute(self.dialect.drop(trigger))
            for statement in self.dialect.leftovers():
                cursor.execute(statement)

    @contextmanager
    def explained(self, table: str) -> Iterator[None]:
        """Raise ``CaptureError``, with advice, if the database refuses."""
        try:
            yield
        except DatabaseError as error:
            raise CaptureError(
                f"Database {self.using!r} refuses to change triggers of {table}: {str(error).strip()}. "
                f"{self.dialect.advice} Or do without: set ZRANK = "
                '{"CAPTURE": "signals"}, whose gaps are documented.'
            ) from error


def _triggers(using: str, indexes: Collection[RankIndex] = ()) -> _Triggers | None:
    """Return the triggers of a database; None if it can't have any, and needs none."""
    connection = connections[using]
    if connection.vendor in DIALECTS:
        return _Triggers(using, indexes)
    if indexes and get_settings().capture == "triggers":
        raise CaptureError(
            f"Database {using!r}: there are no triggers for {connection.display_name}. "
            'Set ZRANK = {"CAPTURE": "signals"}.'
        )
    return None


def status(using: str, indexes: Collection[RankIndex]) -> Status:
    """Compare the triggers of a database with what these indexes ask for.

    MariaDB and MySQL show triggers only to an account that has the TRIGGER privilege.
    """
    mode, own = get_settings().capture, _triggers(using, indexes)
    if own is None:
        return Status(mode)
    others = own.found.keys() - own.wanted
    known = own.owners | {owner_of(index.name) for index in registry.all()}
    problems = [f"{table} {problem}" for table, problem in sorted(own.dialect.problems().items())]
    return Status(
        mode,
        missing=sorted({trigger for trigger in own.wanted if not own.found.get(trigger)} | own.dangling),
        outdated=sorted(trigger for trigger in others - own.dangling if trigger.owner in own.owners),
        unexpected=sorted(trigger for trigger in others if trigger.owner not in known),
        error=f"Triggers can't watch every table: {'; '.join(problems)}." if problems else None,
    )


def unwatchable(using: str, indexes: Collection[RankIndex]) -> Iterator[tuple[RankIndex, str, str]]:
    """Yield each index with a table that triggers can't watch, or with one of the app's own that can't hold marks, and
    the reason."""
    for index in indexes:
        if own := _triggers(using, [index]):
            yield from ((index, table, problem) for table, problem in sorted(own.dialect.problems().items()))


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
    own = _triggers(index.get_using(), [index])
    if own is None or (all(map(own.is_in_place, own.units)) and not own.obstacles()):
        return []
    with own.explained(index.model._meta.db_table), own.dialect.short_lock_timeout():
        return own.add()


def install(using: str, indexes: Collection[RankIndex]) -> Changes:
    """Create the triggers that these indexes need in a database, and then drop those that they don't need any more.

    Triggers in place stay untouched, without a lock on their tables. Tables that don't exist yet are skipped. Triggers
    that name a missing column are dropped, and all triggers if there is no table of marks. It never waits long for a
    lock, behind which all later writers would wait, and tries again for ``_PATIENCE`` seconds. Raises
    :exc:`~django_zrank.exceptions.CaptureError`.
    """
    deadline = monotonic() + _PATIENCE
    while True:
        own = _triggers(using, indexes)
        if own is None:
            return Changes([], [])
        try:
            with own.dialect.short_lock_timeout():
                unwanted, obstacles = {*own.found}, own.obstacles()
                if own.dialect.has(Mark._meta.db_table, ["index"]):
                    unwanted = {trigger for trigger in own.found if trigger.owner in own.owners} - own.wanted
                    unwanted |= own.dialect.dangling()
                created = own.add()
                own.drop(unwanted - obstacles)
                return Changes(created, sorted(unwanted | obstacles))
        except CaptureError as error:
            is_locked = isinstance(error.__cause__, DatabaseError) and is_delay(error.__cause__)
            if not is_locked or monotonic() >= deadline:
                raise
        sleep(_PAUSE)


def drop(using: str, names: Iterable[str] | None = None, *, dry_run: bool = False) -> Changes:
    """Drop the app's triggers in a database: all of them, or those of indexes with these names, without waiting long
    for a lock. ``dry_run``: only return them. Raises :exc:`~django_zrank.exceptions.CaptureError`."""
    owners = None if names is None else {owner_of(name) for name in names}
    own = _triggers(using)
    unwanted = (
        sorted(trigger for trigger in own.found if owners is None or trigger.owner in owners) if own else []
    )
    if own and unwanted and not dry_run:
        with nullcontext() if owners is None else own.dialect.short_lock_timeout():
            own.drop(unwanted)
    return Changes([], unwanted)


def renew(*, using: str, **kwargs: Any) -> None:
    """Install the triggers of the registered indexes after migrations."""
    install(using, [*captured(using), *sharing(using)])


def guard(*, using: str, plan: Sequence[tuple[Migration, bool]] = (), **kwargs: Any) -> None:
    """Let each operation of the plan drop the triggers that name a column, just before it removes the column.

    Such a trigger would fail every write of its table (on SQLite, the migration). If it were dropped earlier, in
    another transaction, it would be missing if the migration fails and the old release goes on.
    """
    connection = connections[using]
    if plan and connection.vendor in DIALECTS and DIALECTS[connection.vendor](connection, []).texts():
        for migration, _ in plan:
            migration.operations = [_guarded(operation) for operation in migration.operations]  # type: ignore[misc]


def _guarded(operation: Operation) -> Operation:
    if isinstance(operation, RunPython):
        return operation
    operation = copy(operation)  # the original belongs to its module, and may be run again
    operation.database_forwards = _releasing(operation.database_forwards)  # type: ignore[method-assign]
    operation.database_backwards = _releasing(operation.database_backwards)  # type: ignore[method-assign]
    if isinstance(operation, SeparateDatabaseAndState):
        operation.database_operations = [_guarded(inner) for inner in operation.database_operations]
    return operation


def _releasing(run: Callable[..., None]) -> Callable[..., None]:
    def released(
        app_label: str, editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        own = _Triggers(editor.connection.alias, [])
        leaving = _columns(from_state) - _columns(to_state)
        marks = {table for table, _ in leaving} & {Mark._meta.db_table}
        alters_marks = marks or (own.dialect.remakes_tables and _alters_marks(from_state, to_state))
        _release(own, leaving, everything=bool(alters_marks))
        run(app_label, editor, from_state, to_state)
        if not own.dialect.transactional:  # a watcher may have restored them meanwhile
            _release(own, leaving, everything=bool(alters_marks))

    return released


def _release(own: _Triggers, columns: Iterable[tuple[str, str]], *, everything: bool) -> None:
    """Drop the triggers that name one of these columns, ``(table, column)``, or all triggers."""
    texts = own.dialect.texts() if everything or columns else {}
    if everything:
        own.drop(texts)
        return
    leaving: dict[str, set[str]] = {}
    for table, column in columns:
        for spelling in own.dialect.written_by(table):
            leaving.setdefault(spelling, set()).add(own.dialect.fold(column))
    own.drop(
        {
            trigger
            for trigger, text in texts.items()
            if own.dialect.named(text) & leaving.get(trigger.table, set())
        }
    )


def _columns(state: ProjectState) -> set[tuple[str, str]]:
    """Return each table with each of its columns."""
    models = state.apps.get_models(include_auto_created=True)
    return {
        (model._meta.db_table, str(field.column))
        for model in models
        for field in model._meta.local_concrete_fields
    }


def _alters_marks(from_state: ProjectState, to_state: ProjectState) -> bool:
    """Return True if the table of marks is altered. While SQLite remakes it, no trigger may name it."""
    key = Mark._meta.app_label, str(Mark._meta.model_name)
    before, after = (state.models.get(key) for state in (from_state, to_state))
    return before is not None and after is not None and before != after
