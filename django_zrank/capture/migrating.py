"""Migrations: the triggers that name a column are dropped with it, in the operation that removes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from typing import Any

from django.db import DatabaseError, connections
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.operations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from ..exceptions import CaptureError
from ..models import Mark
from ..transactions import is_delay
from .dialects import DIALECTS
from .triggers import TriggerSet

logger = logging.getLogger("django_zrank.sync")


def guard(*, using: str, plan: Sequence[tuple[Migration, bool]] = (), **kwargs: Any) -> None:
    """Let each operation of the plan drop the triggers that name a column, just before it removes the column.

    Such a trigger would fail every write of its table (on SQLite, the migration). If it were dropped earlier, in
    another transaction, it would be missing if the migration fails and the old release goes on.
    """
    connection = connections[using]
    if plan and connection.vendor in DIALECTS and DIALECTS[connection.vendor](connection, []).texts():
        known: set[tuple[str, str]] = set()
        for migration, _ in plan:
            operations = [_guarded(operation, known) for operation in migration.operations]
            migration.operations = operations  # type: ignore[misc]


def _guarded(operation: Operation, known: set[tuple[str, str]]) -> Operation:
    """Return a copy of an operation that drops triggers. ``known``: the columns that the models had before the plan,
    once its first operation has begun."""
    operation = copy(operation)  # the original belongs to its module, and may be run again
    if isinstance(operation, SeparateDatabaseAndState):
        # Each operation on the database has states of its own. One on the state alone removes no column.
        inner = [_guarded(one, known) for one in operation.database_operations]
        operation.database_operations = inner
    else:
        forwards, backwards = operation.database_forwards, operation.database_backwards
        operation.database_forwards = _releasing(forwards, known)  # type: ignore[method-assign]
        operation.database_backwards = _releasing(backwards, known)  # type: ignore[method-assign]
    return operation


def _releasing(run: Callable[..., None], known: set[tuple[str, str]]) -> Callable[..., None]:
    def released(
        app_label: str, editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        own = TriggerSet(editor.connection.alias, [])
        before, after = _columns(from_state), _columns(to_state)
        known.update(() if known else before)
        leaving = before - after
        marks = {table for table, _ in leaving} & {Mark._meta.db_table}
        alters_marks = bool(marks) or (own.dialect.remakes_tables and _alters_marks(from_state, to_state))
        _release(own, leaving, everything=alters_marks)
        # Only an earlier release, which removed it from the state, can name a column that no model had before the plan.
        # SQLite refuses to remove a column that a trigger names, even if an operation of this plan removed it from the
        # state.
        unknown = after if own.dialect.remakes_tables else known | after
        _release_stale(own, unknown, _tables(from_state, to_state))
        try:
            run(app_label, editor, from_state, to_state)
        except Exception:
            # What is not undone with the operation must not fail every write of a table.
            if not editor.connection.in_atomic_block:
                with suppress(CaptureError, DatabaseError):
                    own.drop(own.dialect.dangling())
            raise
        if alters_marks and not own.dialect.transactional:  # a watcher may have restored them meanwhile
            _release(own, leaving, everything=True)
        own.drop(own.dialect.dangling())

    return released


def _release(own: TriggerSet, columns: Iterable[tuple[str, str]], *, everything: bool) -> None:
    """Drop the triggers that name one of these columns, ``(table, column)``, or all triggers."""
    texts = own.dialect.texts() if everything or columns else {}
    if everything:
        own.drop(texts)
        return
    leaving = _by_table(own, columns)
    own.drop(
        {
            trigger
            for trigger, text in texts.items()
            if own.dialect.named(text) & leaving.get(trigger.table, set())
        }
    )


def _release_stale(own: TriggerSet, columns: Iterable[tuple[str, str]], tables: Iterable[str]) -> None:
    """Drop the triggers of these tables that name none of these columns, unless another session has locked a table: an
    operation that removes the column waits for the lock, and drops them then."""
    texts = own.dialect.texts()
    if not texts:
        return
    known = _by_table(own, [*columns, *((table, "") for table in tables)])
    ours = {spelling for names in own.dialect.written_by(tables).values() for spelling in names}
    stale = {
        trigger
        for trigger, text in texts.items()
        if trigger.table in ours and not own.dialect.named(text) <= known[trigger.table]
    }
    try:
        with own.dialect.short_lock_timeout() if stale else nullcontext():
            own.drop(stale)
    except CaptureError as error:
        if not (isinstance(error.__cause__, DatabaseError) and is_delay(error.__cause__)):
            raise


def _by_table(own: TriggerSet, columns: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the columns of each table, both as the database spells them."""
    found: dict[str, set[str]] = {}
    columns = list(columns)
    spellings = own.dialect.written_by({table for table, _ in columns})
    for table, column in columns:
        for spelling in spellings.get(table, ()):
            found.setdefault(spelling, set()).add(own.dialect.fold(column))
    return found


def _tables(*states: ProjectState) -> set[str]:
    """Return the tables of models that have migrations. Of others, a state knows no foreign keys."""
    found: set[str] = set()
    for state in states:
        for model in state.apps.get_models(include_auto_created=True):
            if (model._meta.app_label, model._meta.model_name) in state.models or model._meta.auto_created:
                found.add(model._meta.db_table)
    return found


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
