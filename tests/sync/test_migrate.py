"""Migrations that take away what triggers name, that fail, and that are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.apps import apps
from django.core.management.sql import emit_pre_migrate_signal
from django.db import DatabaseError, connection, connections, migrations, models, transaction
from django.db.migrations.state import ProjectState

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.capture.dialect import Trigger
from django_zrank.exceptions import CaptureError
from django_zrank.models import Mark
from django_zrank.registry import registry
from django_zrank.sync.health import Status, examine
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.servers import wait_for
from tests.sync.capturing import installed, marks, migrate, migrated, only, plan
from tests.sync.interruptions import somebody_waits
from tests.sync.mirror import assert_mirrors

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


class Failed(Exception):
    """Raised by a migration."""


def fail(*args: Any) -> None:
    raise Failed


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[models.Model]]:
    """A table of its own, ranked by ``score``; no other index is registered."""

    class Old(models.Model):
        score = models.IntegerField(default=0)
        points = models.IntegerField(default=0)
        note = models.IntegerField(default=0)

        class Meta:
            app_label = "testapp"

    with connection.schema_editor() as editor:
        editor.create_model(Old)
    index = type("OldRank", (RankIndex,), {"name": "old", "model": Old, "order": ("-score",)})
    monkeypatch.setattr(registry, "_classes", {index: None})
    triggers.install("default", triggers.captured("default"))
    Old.objects.bulk_create(Old(score=score) for score in range(5))
    rebuild(index.instance())
    Mark.objects.all().delete()
    yield Old
    triggers.drop("default", ["old", "new"])
    with connection.cursor() as cursor:
        for name in ("testapp_old", "testapp_new"):
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
    del apps.all_models["testapp"]["old"]
    monkeypatch.undo()
    migrated()
    Mark.objects.all().delete()


def index() -> RankIndex:
    return registry.all()[0]


def watching() -> set[Trigger]:
    """The triggers that updates of that table fire, by whatever name it has by now: they alone name what is read."""
    tables = ("testapp_old", "testapp_new")
    return {
        trigger
        for trigger in installed()
        if trigger.table.endswith(tables) and trigger.name.endswith("_update")
    }


def columns() -> set[str]:
    with connection.cursor() as cursor:
        found = connection.introspection.get_table_description(cursor, "testapp_old")
    return {column.name for column in found}


def write(column: str = "score") -> Callable[..., None]:
    """An operation that writes every row, as a data migration does."""

    def run(apps: Any, editor: Any) -> None:
        with editor.connection.cursor() as cursor:
            cursor.execute(f"UPDATE testapp_old SET {column} = {column} + 10")

    return run


def column(name: str, **options: Any) -> Any:
    return models.IntegerField(default=0, db_column=name, **options)


@pytest.mark.parametrize(
    ("operation", "goes"),
    [
        (migrations.AddField("old", "more", models.IntegerField(default=0)), False),
        (migrations.AlterField("old", "note", models.IntegerField(default=7)), False),
        (migrations.RemoveField("old", "score"), True),
        (migrations.RenameField("old", "score", "level"), True),
        (migrations.AlterField("old", "score", column("level")), True),
        (
            migrations.RunSQL(
                "ALTER TABLE testapp_old RENAME COLUMN score TO level",
                state_operations=[migrations.AlterField("old", "score", column("level"))],
            ),
            True,
        ),
        (
            migrations.SeparateDatabaseAndState(
                database_operations=[migrations.AlterField("old", "score", column("level"))]
            ),
            True,
        ),
        (migrations.RemoveField("old", "note"), False),
        (migrations.RenameField("old", "note", "remark"), False),
        (migrations.AlterModelTable("old", "testapp_new"), True),
    ],
)
def test_what_would_break_a_trigger_drops_it_first(old: Any, operation: Any, goes: bool) -> None:
    before, seen = watching(), []
    remade = connection.vendor == "sqlite" and not isinstance(
        operation, (migrations.RemoveField, migrations.RenameField)
    )
    migrate(operation, then=lambda: seen.append(watching()))
    assert seen == [set() if goes or remade else before]


@pytest.mark.parametrize(
    "rename",
    [
        migrations.RenameField("old", "score", "level"),
        migrations.AlterField("old", "score", column("level")),  # by its db_column
    ],
)
def test_only_when_its_turn_comes(old: Any, rename: Any) -> None:
    """Rows that a data migration writes before leave their marks."""
    seen = []
    migrate(
        migrations.RunPython(lambda apps, editor: seen.append(bool(watching()))),
        migrations.RunPython(write()),
        rename,
        migrations.RunPython(write("level")),
        migrations.RunPython(lambda apps, editor: seen.append(bool(watching()))),
    )
    assert seen == [True, False]
    assert "level" in columns()
    assert len(marks("old")) >= 5


def test_a_column_that_is_not_read_any_more_can_be_dropped(old: Any) -> None:
    registry._classes = {
        type("New", (RankIndex,), {"name": "old", "model": old, "order": ("-points",)}): None
    }
    migrate(migrations.RemoveField("old", "score"), migrations.RunPython(write("points")))
    assert marks("old") == [None]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_old SET points = points + 1")
    marks("old")
    rebuild(index())
    assert not triggers.examine_triggers("default", triggers.captured("default")).outdated
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_old SET points = points + 1")
    assert len(marks("old")) == 5


def test_the_columns_of_an_index_that_is_removed_as_well(old: Any) -> None:
    """Its triggers are nobody's any more, and would fail every write."""
    registry._classes = {}
    migrate(migrations.RemoveField("old", "score"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_old SET points = points + 1")
    assert not watching()


def test_a_trigger_that_names_a_column_which_is_gone_is_dropped_when_all_is_done(old: Any) -> None:
    """Raw SQL tells nobody what it takes away."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite renames the column in the trigger.")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_old RENAME COLUMN score TO level")
        with pytest.raises(DatabaseError):
            cursor.execute("UPDATE testapp_old SET level = 1")
        migrated()
        cursor.execute("UPDATE testapp_old SET level = 1")


# Migrations that fail


@pytest.mark.parametrize(
    ("operation", "atomic"),
    [
        (migrations.AlterField("old", "note", models.BigIntegerField(default=1)), True),
        (migrations.AlterField("old", "note", models.BigIntegerField(default=1)), False),
        (migrations.RenameField("old", "score", "level"), True),
        (migrations.RenameField("old", "score", "level"), False),
        (migrations.AddField("old", "more", models.IntegerField(default=0)), False),
        (migrations.RunPython(migrations.RunPython.noop), True),
    ],
)
def test_a_migration_that_fails_while_the_old_release_goes_on(old: Any, operation: Any, atomic: bool) -> None:
    with pytest.raises(Failed):
        migrate(operation, migrations.RunPython(fail), atomic=atomic)
    if "score" not in columns():  # half done, as MariaDB does: somebody puts it back
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE testapp_old RENAME COLUMN level TO score")
    old.objects.update(score=7)
    healthy = examine(index()) is Status.HEALTHY and not marks_wait()
    assert not healthy
    sync(index())
    assert examine(index()) is Status.HEALTHY
    assert not marks_wait()
    assert_mirrors(type(index()))
    old.objects.update(score=8)
    sync(index())
    assert_mirrors(type(index()))


def marks_wait() -> bool:
    return Mark.objects.filter(index="old").exists()


def test_a_second_migration_that_fails_after_the_first_one_has_committed(old: Any) -> None:
    """On SQLite the first one has remade the table, and with it went its triggers."""
    with suppress(Failed):
        ((first, _),) = steps = plan(migrations.AlterField("old", "note", models.BigIntegerField(default=1)))
        emit_pre_migrate_signal(0, False, "default", plan=steps)
        with connection.schema_editor() as editor:
            first.apply(ProjectState.from_apps(apps), editor)
        fail()
    old.objects.update(score=7)
    assert examine(index()) is Status.TRIGGERS_MISSING or marks_wait()
    sync(index())
    assert examine(index()) is Status.HEALTHY
    assert_mirrors(type(index()))


@only("postgresql")
def test_a_migration_that_commits_while_triggers_are_made(old: Any) -> None:
    """They would name a column that is gone, and fail every write."""
    triggers.drop("default", ["old"])

    def install() -> None:
        try:
            triggers.install("default", triggers.captured("default"))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE testapp_old RENAME COLUMN score TO level")
            installing = thread.submit(install)
            wait_for(lambda: somebody_waits() or installing.done())
        with pytest.raises(CaptureError, match="has changed while"):
            installing.result(timeout=60)
    assert not watching()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_old SET level = 1")


# Undone


def test_a_migration_that_is_undone(old: Any) -> None:
    before = watching()
    migration = migrations.Migration("next", "testapp")
    migration.operations = [migrations.AddField("old", "level", models.IntegerField(default=0))]
    state = ProjectState.from_apps(apps)
    with connection.schema_editor() as editor:
        migration.apply(state.clone(), editor)
    old.add_to_class("level", models.IntegerField(default=0))
    registry._classes = {type("New", (RankIndex,), {"name": "old", "model": old, "order": ("-level",)}): None}
    migrated()
    assert watching() - before
    emit_pre_migrate_signal(0, False, "default", plan=[(migration, True)])
    with connection.schema_editor() as editor:
        migration.unapply(state, editor)
    assert watching() <= before
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_old SET points = 1")


# The app's own tables


@only("sqlite")
def test_the_table_of_marks_can_be_remade_on_sqlite() -> None:
    """SQLite refuses to rename a table while a trigger names one that isn't there."""
    before = installed()
    migrate(
        migrations.AddField("mark", "note", models.IntegerField(default=0)),
        migrations.RemoveField("mark", "note"),
        app="zrank",
    )
    assert installed() == before
    assert triggers.examine_triggers("default", triggers.captured("default")).works
    Mark.objects.all().delete()
