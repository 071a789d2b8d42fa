"""Capture during ``migrate``: triggers are dropped with the columns that they name, and installed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from django.db import connections
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.operations import RunPython, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from ..models import Mark
from .dialects import DIALECTS
from .triggers import captured, install, release, sharing

__all__ = ["guard", "renew"]


def guard(*, using: str, plan: Sequence[tuple[Migration, bool]] = (), **kwargs: Any) -> None:
    """Let each operation of the plan drop the triggers that name a column, just before it removes the column.

    Such a trigger would fail every write of its table (on SQLite, the migration). If it were dropped earlier, in
    another transaction, it would be missing if the migration fails and the old release goes on.
    """
    connection = connections[using]
    if plan and connection.vendor in DIALECTS and DIALECTS[connection.vendor](connection, []).texts():
        for migration, _ in plan:
            migration.operations = [_guarded(operation) for operation in migration.operations]  # type: ignore[misc]


def renew(*, using: str, **kwargs: Any) -> None:
    """Install the triggers of the registered indexes after migrations."""
    install(using, [*captured(using), *sharing(using)])


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
        using = editor.connection.alias
        leaving = _columns(from_state) - _columns(to_state)
        if DIALECTS[editor.connection.vendor].remakes_tables and _alters_marks(from_state, to_state):
            leaving |= {(Mark._meta.db_table, "")}
        release(using, leaving)
        run(app_label, editor, from_state, to_state)
        if not DIALECTS[editor.connection.vendor].transactional:
            release(using, leaving)  # a watcher may have restored them meanwhile

    return released


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
