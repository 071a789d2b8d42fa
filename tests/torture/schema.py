"""Other people's work on the database: migrations that fail in the middle, triggers that somebody drops, tables that
somebody restores, locks that somebody holds; and processes of another release."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread, Timer
from time import sleep
from typing import Final

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, Error, connection, connections, transaction

from django_zrank.sync.push import forget
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import watch
from tests.testapp.models import Competitor, Person, Player, Profile
from tests.testapp.zrank import PlayerRank
from tests.torture.databases import PostgreSQL
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

    strikes: dict[str, Strike] = {
        "migration": partial(in_process, _fail_migration, "migration"),
        "triggers": partial(in_process, _drop_triggers, "triggers"),
        "release": partial(in_process, _run_another_release, "release"),
        "locks": partial(in_process, _lock_rows, "locks"),
    }
    return strikes | (
        {"table": partial(in_process, _restore_a_table, "table")} if connection.vendor in _RESTORE else {}
    )


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
    except Error as error:  # somebody has killed its connection: what MariaDB has kept is renamed back
        print(error)
        connection.close()
        if connection.vendor == "mysql":
            _rename_back()
    connections.close_all()


def _rename_back() -> None:
    with connection.cursor() as cursor:
        for table, wrong, right in (("player", "grade", "level"), ("competitor", "level", "points")):
            columns = connection.introspection.get_table_description(cursor, f"testapp_{table}")
            if wrong in {column.name for column in columns}:
                cursor.execute(f"ALTER TABLE testapp_{table} RENAME COLUMN {wrong} TO {right}")


def _run_another_release(folder: Path, chance: random.Random) -> None:
    """A watcher of a release that ranks other rows, and a web process of it, for a second or two."""
    index = PlayerRank.instance()
    PlayerRank.get_queryset = lambda self: Player.objects.filter(level__gt=1000)  # type: ignore[method-assign]
    for part in (index, *index.holders):
        vars(part).pop("declaration", None)
        forget(part)
    stop = Event()
    Timer(1 + chance.random(), stop.set).start()
    writer = Thread(target=_save_players, args=(chance.random(), stop))
    writer.start()
    with suppress(Exception):  # as its deployment does: a worker alone leaves the index to the other release
        rebuild(index)
    watch([index], interval=0.1, stop=stop, report=print)
    writer.join()
    connections.close_all()


def _save_players(seed: float, stop: Event) -> None:
    chance = random.Random(seed)
    while not stop.wait(0.05):
        with suppress(Error):
            player = Player(pk=chance.randint(1, 400), level=chance.randrange(1_000_000))
            player.save(force_update=True)
    connections.close_all()


def _lock_rows(folder: Path, chance: random.Random) -> None:
    """Hold some rows of each table for up to two seconds."""
    with suppress(Error), transaction.atomic():
        for model in (Player, Person, Profile, Competitor):
            first = chance.randint(1, 100)
            list(model.objects.select_for_update().filter(pk__in=range(first, first + 20)))
        sleep(2 * chance.random())
    connections.close_all()


_RESTORE: Final = {
    "postgresql": (
        "pg_dump --host={HOST} --username={USER} --dbname={NAME} --table=testapp_nickname --clean",
        "psql --host={HOST} --username={USER} --dbname={NAME} --quiet --single-transaction",
    ),
    "mysql": (
        "mariadb-dump --no-defaults --socket={HOST} --user={USER} --single-transaction {NAME} testapp_nickname",
        "mariadb --no-defaults --socket={HOST} --user={USER} {NAME}",
    ),
}
"""Commands that write one table, with its triggers, and bring it back."""


def _restore_a_table(folder: Path, chance: random.Random) -> None:
    """Bring back the nicknames as they were a moment ago."""
    dump, restore = (
        command.format(**connection.settings_dict).split() for command in _RESTORE[connection.vendor]
    )
    if connection.vendor == "postgresql":
        dump[0], restore[0] = (PostgreSQL.program(command[0]) for command in (dump, restore))
    kept = subprocess.run(dump, check=True, capture_output=True).stdout
    sleep(chance.random())
    done = subprocess.run(restore, input=kept, capture_output=True)
    print(done.returncode, done.stderr.decode())


def _drop_triggers(folder: Path, chance: random.Random) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_TRIGGERS[connection.vendor])
        names = sorted(name for (name,) in cursor.fetchall())
        for name in chance.sample(names, min(len(names), chance.randint(1, 6))):
            with suppress(DatabaseError):
                cursor.execute(f"DROP TRIGGER {name}")
                print(name)
    connections.close_all()
