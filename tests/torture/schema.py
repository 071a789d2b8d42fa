"""Faults of capture: migrations that fail in the middle, and triggers that somebody drops."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, connections

from tests.torture.processes import Process
from tests.torture.strike import Strike

__all__ = ["capture_strikes"]

_MODULE: Final = "torture_migrations"

_FAILS: Final = """
from django.db import migrations

def fail(apps, schema_editor):
    raise RuntimeError("This migration is meant to fail.")

class Migration(migrations.Migration):
    dependencies = [("testapp", "0001_initial")]
    operations = [
        migrations.RenameField("player", "level", "grade"),
        migrations.RenameField("competitor", "points", "level"),
        migrations.RenameField("competitor", "level", "points"),
        migrations.RenameField("player", "grade", "level"),
        migrations.RunPython(fail),
        migrations.RemoveField("player", "level"),
    ]
"""

_TRIGGERS: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'zrank_*'",
    "postgresql": "SELECT format('%I ON %s', tgname, tgrelid::regclass) FROM pg_trigger WHERE tgname ~ '^zrank_'",
    "mysql": "SELECT trigger_name FROM information_schema.triggers"
    " WHERE trigger_schema = DATABASE() AND LEFT(trigger_name, 6) = 'zrank_'",
}
"""By the vendor of a connection: a query for the triggers that capture has made, as DROP TRIGGER names them."""


def capture_strikes(folder: Path, leaving: list[Process]) -> dict[str, Strike]:
    """By name. Each is done by a process of its own, which joins those that are ``leaving``: it may have to wait for a
    writer that is paused."""

    def in_process(task: Callable[[Path, random.Random], None], name: str, chance: random.Random) -> bool:
        leaving.append(Process(partial(task, folder, chance), folder / f"{name}.log"))
        return True

    return {
        "migration": partial(in_process, _fail_migration, "migration"),
        "triggers": partial(in_process, _drop_triggers, "triggers"),
    }


def _fail_migration(folder: Path, chance: random.Random) -> None:
    """Migrate columns that indexes read, and fail: what is in a transaction is undone."""
    sys.path.insert(0, str(folder))
    settings.MIGRATION_MODULES = {**settings.MIGRATION_MODULES, "testapp": _MODULE}
    module = folder / _MODULE
    if not module.exists():
        module.mkdir()
        (module / "__init__.py").touch()
        call_command("makemigrations", "testapp", verbosity=0)
        (module / "0002_fails.py").write_text(_FAILS)
        call_command("migrate", "testapp", "0001", fake=True, verbosity=0)
    try:
        call_command("migrate", "testapp", verbosity=0)
    except RuntimeError as error:
        print(error)
    connections.close_all()


def _drop_triggers(folder: Path, chance: random.Random) -> None:
    """Drop some."""
    with connection.cursor() as cursor:
        cursor.execute(_TRIGGERS[connection.vendor])
        names = sorted(name for (name,) in cursor.fetchall())
        for name in chance.sample(names, min(len(names), chance.randint(1, 6))):
            with suppress(DatabaseError):
                cursor.execute(f"DROP TRIGGER {name}")
                print(name)
    connections.close_all()
