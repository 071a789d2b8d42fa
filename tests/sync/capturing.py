"""Helpers for tests of capture: marks, triggers, and migrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db import connection, connections, migrations, models
from django.db.migrations.state import ProjectState

from django_zrank.capture import triggers
from django_zrank.capture.dialect import Trigger
from django_zrank.capture.dialects import DIALECTS
from django_zrank.models import Mark
from tests.testapp.models import Player

__all__ = [
    "connected_as",
    "drop_by_hand",
    "examine_all",
    "forget",
    "install",
    "installed",
    "marks",
    "migrate",
    "migrated",
    "only",
    "plan",
    "table",
    "texts",
]


def only(*vendors: str) -> pytest.MarkDecorator:
    """Run the test on these databases."""
    return pytest.mark.skipif(
        f"{connection.vendor!r} not in {vendors!r}", reason=f"on {', '.join(vendors)} alone"
    )


def marks(index: str = "player", using: str = "default", **filters: Any) -> list[str | None]:
    """The members marked since the last call, in order."""
    found = Mark.objects.using(using).filter(index=index, **{"via": None, **filters})
    members = sorted(found.values_list("member", flat=True), key=str)
    Mark.objects.using(using).all().delete()
    return members


def texts(*rows: Any) -> list[str]:
    return sorted(str(getattr(row, "pk", row)) for row in rows)


def installed(using: str = "default") -> dict[Trigger, bool]:
    """Every trigger of ours that the database has."""
    return DIALECTS[connections[using].vendor](connections[using], [Player._meta.db_table]).installed()


def install(using: str = "default") -> triggers.Changes:
    """Install the triggers of every index of a database."""
    return triggers.install(using, triggers.captured(using))


def examine_all(using: str = "default") -> triggers.TriggerReport:
    """The state of these triggers."""
    return triggers.examine_triggers(using, triggers.captured(using))


@contextmanager
def table(model: type[models.Model]) -> Iterator[None]:
    """The table of a model that is declared for one test."""
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
        forget(model)


def forget(model: type[models.Model]) -> None:
    """Let Django know no more of a model."""
    del model._meta.apps.all_models[model._meta.app_label][model._meta.model_name or ""]
    model._meta.apps.clear_cache()


def drop_by_hand(*found: Trigger) -> None:
    """Take triggers away as somebody else would, who leaves no mark."""
    with connection.cursor() as cursor:
        for trigger in found:
            cursor.execute(DIALECTS[connection.vendor](connection, []).drop(trigger))


def migrated(using: str = "default", **kwargs: Any) -> None:
    """Tell every app that migrations are done."""
    emit_post_migrate_signal(0, False, using, **kwargs)


def plan(*operations: Any, app: str = "testapp", backwards: bool = False) -> list[tuple[Any, bool]]:
    migration = migrations.Migration("next", app)
    migration.operations = list(operations)
    return [(migration, backwards)]


def migrate(
    *operations: Any, app: str = "testapp", atomic: bool = True, then: Callable[[], None] = lambda: None
) -> None:
    """Run a migration as the command does, on the tables as they are. ``then`` may fail, before it commits."""
    ((migration, _),) = steps = plan(*operations, app=app)
    emit_pre_migrate_signal(0, False, "default", plan=steps)
    atomic = atomic and connection.features.can_rollback_ddl
    with connection.schema_editor(atomic=atomic) as editor:
        migration.apply(ProjectState.from_apps(apps), editor)
        then()
    migrated()


@contextmanager
def connected_as(privileges: str) -> Iterator[str]:
    """Be an account of MariaDB that has these privileges ("SELECT ON testapp_player") and no others. Its name is new,
    since accounts belong to the server, which workers of pytest share."""
    user = f"zrank_{uuid4().hex}"[:32]
    usual = {name: connection.settings_dict[name] for name in ("USER", "PASSWORD")}
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {user}@localhost IDENTIFIED BY 'secret'")
        cursor.execute(f"GRANT {privileges} TO {user}@localhost")
    connection.close()
    try:
        connection.settings_dict.update(USER=user, PASSWORD="secret")
        yield user
    finally:
        connection.close()
        connection.settings_dict.update(usual)
        with connection.cursor() as cursor:
            cursor.execute(f"DROP USER {user}@localhost")
