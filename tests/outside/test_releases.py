"""Releases of a project that share a database and a Redis: one is deployed while processes of another still run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.projects import ROOT, SETTINGS
from tests.servers import wait_for

pytestmark = pytest.mark.slow

DATABASE = os.environ.get("ZRANK_TEST_DATABASE", "sqlite")
HOST = os.environ.get("ZRANK_TEST_DATABASE_HOST", "127.0.0.1")
PORT = os.environ.get("ZRANK_TEST_DATABASE_PORT", "")
USER = os.environ.get("ZRANK_TEST_DATABASE_USER", "postgres")
PASSWORD = os.environ.get("ZRANK_TEST_DATABASE_PASSWORD", "")

RELEASED = f"""{SETTINGS}
import json
DATABASES = json.loads(os.environ["PROJECT_DATABASES"])
ZRANK = {{"KEY_PREFIX": os.environ["PROJECT_PREFIX"], "CAPTURE": os.environ["PROJECT_CAPTURE"]}}
SILENCED_SYSTEM_CHECKS = ["zrank.W005", "zrank.W003"]
LOGGING = {{
    "version": 1,
    "handlers": {{"console": {{"class": "logging.StreamHandler"}}}},
    "loggers": {{"django_zrank": {{"handlers": ["console"], "level": os.environ["PROJECT_LEVEL"]}}}},
}}
"""

MODELS = """
from django.db import models

class Player(models.Model):
    {fields}
"""

INDEX = """
from django_zrank import RankIndex, register
from .models import Player

@register
class PlayerRank(RankIndex):
    name = "player"
    model = Player
    order = {order!r}
    using = {using!r}
    write_behind = {write_behind!r}
"""

MIGRATION = """
from pathlib import Path
from time import sleep

from django.db import migrations, models

WRITE = "UPDATE players_player SET points = points + 1"

def fail(apps, editor):
    raise RuntimeError("a migration that fails")

def drop(apps, editor):
    with editor.connection.cursor() as cursor:
        cursor.execute("ALTER TABLE players_player DROP COLUMN grade")

def drop_later(apps, editor):
    Path("reached").touch()
    for _ in range(1200):
        if Path("go on").exists():
            break
        sleep(0.05)
    drop(apps, editor)
    with editor.connection.cursor() as cursor:
        cursor.execute(WRITE)

class Migration(migrations.Migration):
    atomic = {atomic}
    dependencies = {after}
    operations = [{operations}]
"""

FIRST = """migrations.CreateModel("Player", [
    ("id", models.BigAutoField(primary_key=True)),
    ("level", models.IntegerField(default=0)),
    ("score", models.IntegerField(default=0)),
    ("grade", models.IntegerField(default=0)),
    ("points", models.IntegerField(default=0)),
])"""

MEMBERS = 100
POPULATE = """
from players.models import Player
Player.objects.using({alias!r}).bulk_create(Player(level=n, score=n, grade=n, points=-n) for n in range(100))
"""


class Site:
    """Databases that releases share: each of them a folder of code."""

    def __init__(self, folder: Path, redis: str) -> None:
        self.folder, self.redis, self.prefix = folder, redis, f"outside-{uuid4().hex[:8]}"
        self.names = {
            alias: str(folder / f"{alias}.sqlite3") if DATABASE == "sqlite" else f"zo_{uuid4().hex[:12]}"
            for alias in ("default", "other")
        }

    def databases(self) -> dict[str, Any]:
        if DATABASE == "sqlite":
            options = {
                "init_command": "PRAGMA journal_mode=WAL",
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
            }
            own = {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": options}
        else:
            engine = "postgresql" if DATABASE == "postgresql" else "mysql"
            own = {"ENGINE": f"django.db.backends.{engine}", "HOST": HOST, "PORT": PORT, "USER": USER}
            own["PASSWORD"] = PASSWORD
        return {alias: {**own, "NAME": name} for alias, name in self.names.items()}

    def connect(self, name: str) -> Any:
        if DATABASE == "sqlite":
            return sqlite3.connect(name, isolation_level=None, timeout=20)
        if DATABASE == "postgresql":
            import psycopg

            where = {"host": HOST, "port": PORT or None, "user": USER, "password": PASSWORD or None}
            return psycopg.connect(dbname=name or "postgres", autocommit=True, **where)
        import MySQLdb

        at = {"unix_socket": HOST} if HOST.startswith("/") else {"host": HOST, "port": int(PORT or 3306)}
        return MySQLdb.connect(database=name, user=USER, password=PASSWORD, autocommit=True, **at)

    def sql(self, statement: str, alias: str | None = "default") -> list[Any]:
        """Execute one statement. ``alias``: None for no database."""
        with closing(self.connect(self.names[alias] if alias else "")) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()] if cursor.description else []

    def create(self, alias: str) -> None:
        if DATABASE != "sqlite":
            self.sql(f"CREATE DATABASE {self.names[alias]}", None)

    def drop(self, alias: str) -> None:
        if DATABASE == "sqlite":
            for path in self.folder.glob(f"{alias}.sqlite3*"):
                path.unlink()
        else:
            force = " WITH (FORCE)" if DATABASE == "postgresql" else ""
            self.sql(f"DROP DATABASE IF EXISTS {self.names[alias]}{force}", None)

    # What it has

    def triggers(self, alias: str = "default") -> list[str]:
        """The names of the triggers on the players' table."""
        catalog = {
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'players_player'",
            "postgresql": "SELECT tgname FROM pg_trigger"
            " WHERE NOT tgisinternal AND tgrelid = to_regclass('players_player')",
            "mariadb": "SELECT trigger_name FROM information_schema.triggers"
            " WHERE trigger_schema = DATABASE() AND event_object_table = 'players_player'",
        }
        catalog["mysql"] = catalog["mariadb"]
        return sorted(self.sql(catalog[DATABASE], alias))

    def marks(self, alias: str = "default") -> int:
        (count,) = self.sql("SELECT count(*) FROM zrank_mark", alias)
        return int(count)

    def marks_of_an_update(self, column: str, alias: str = "default") -> int:
        """The number of marks that an update of all players leaves."""
        before = self.marks(alias)
        self.sql(f"UPDATE players_player SET {column} = {column} + 1", alias)
        return self.marks(alias) - before

    def release(
        self,
        order: str | tuple[str, ...],
        *migrations: str,
        fields: str = "level score grade points",
        using: str | None = None,
        write_behind: str = "",
        capture: str = "triggers",
    ) -> Release:
        """Write a release's code. ``migrations``: the operations of those after the first one."""
        folder = self.folder / f"release-{uuid4().hex[:8]}"
        (folder / "players" / "migrations").mkdir(parents=True)
        columns = "\n    ".join(f"{name} = models.IntegerField(default=0)" for name in fields.split())
        files = {
            "settings.py": RELEASED,
            "players/__init__.py": "",
            "players/models.py": MODELS.format(fields=columns),
            "players/zrank.py": INDEX.format(
                order=order if isinstance(order, tuple) else (order,),
                using=using,
                write_behind=write_behind,
            ),
            "players/migrations/__init__.py": "",
        }
        before: list[tuple[str, str]] = []
        for number, operations in enumerate([FIRST, *migrations], start=1):
            files[f"players/migrations/m{number}.py"] = MIGRATION.format(
                after=before, operations=operations, atomic="drop_later" not in operations
            )
            before = [("players", f"m{number}")]
        for name, text in files.items():
            (folder / name).write_text(text)
        return Release(self, folder, capture)


class Release:
    """The code of one release."""

    def __init__(self, site: Site, folder: Path, capture: str) -> None:
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTEST"))
        }
        self.environment = {
            **kept,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PROJECT_REDIS": site.redis,
            "PROJECT_PREFIX": site.prefix,
            "PROJECT_CAPTURE": capture,
            "PROJECT_LEVEL": "WARNING",
            "PROJECT_DATABASES": json.dumps(site.databases()),
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        }

    def start(self, *args: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(
            [sys.executable, *args], cwd=self.folder, env=self.environment, text=True, **pipes
        )

    def manage(self, *args: str, fails: bool = False) -> str:
        """Run a command of ``manage.py`` in a process. Return what it prints."""
        process = self.start("-m", "django", *args)
        said, _ = process.communicate(timeout=150)
        assert bool(process.returncode) is fails, said
        return said

    def run(self, code: str) -> None:
        """Run Python code of the project in a process."""
        process = self.start("-c", f"import django; django.setup()\n{code}")
        said, _ = process.communicate(timeout=150)
        assert process.returncode == 0, said

    def go_live(self, alias: str = "default") -> None:
        """Migrate, with players, and build the index."""
        self.run(
            "from django.core.management import call_command\n"
            f"call_command('migrate', database={alias!r}, verbosity=0)\n{POPULATE.format(alias=alias)}\n"
            "call_command('rebuild_zrank', verbosity=0)\ncall_command('sync_zrank', verbosity=0)"
        )

    def state_of(self) -> dict[str, Any]:
        return dict(json.loads(self.manage("zrank_status", "--json"))["player"])

    def status(self) -> str:
        return str(self.state_of()["status"])


@pytest.fixture
def site(tmp_path: Path, zrank_server: Any) -> Iterator[Site]:
    if os.environ.get("ZRANK_TEST_CLUSTER"):
        pytest.skip("What is tested is in databases")
    site = Site(tmp_path, zrank_server.url)
    site.create("default")
    site.create("other")
    try:
        yield site
    finally:
        for alias in site.names:
            site.drop(alias)


@pytest.fixture
def watching() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts workers, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def watch(release: Release, interval: float = 0.1) -> subprocess.Popen[str]:
        release.environment["PROJECT_LEVEL"] = "DEBUG"  # each attempt, not only the first
        started.append(release.start("-m", "django", "sync_zrank", "--watch", "--interval", str(interval)))
        release.environment["PROJECT_LEVEL"] = "WARNING"
        return started[-1]

    yield watch
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def wait_until(process: subprocess.Popen[str], said: str) -> None:
    """Wait until a process prints something. Without this line, the test times out."""
    assert process.stdout
    for line in process.stdout:
        if said in line:
            return
    raise AssertionError(f"it ended, and never said: {said}")


GIVES_WAY = "belongs to another release"


def test_a_release_by_the_book(site: Site, watching: Callable[..., subprocess.Popen[str]]) -> None:
    """The older worker runs on, while the newer release migrates and builds its index."""
    older, newer = site.release("-score"), site.release("-points")
    older.go_live()
    before = site.triggers()
    assert site.marks_of_an_update("score") == MEMBERS
    worker = watching(older)
    wait_for(lambda: site.marks() == 0)

    newer.manage("migrate")
    both = site.triggers()
    assert set(before) < set(both), "what is live needs the former ones"
    wait_for(lambda: site.marks() == 0)  # the older worker has processed those of the migration
    older.manage("sync_zrank")  # and looked at the triggers
    assert site.triggers() == both
    assert older.status() == "HEALTHY"
    assert "outdated" in newer.manage("capture_zrank", "--check", fails=True)

    successor = watching(newer)
    wait_until(worker, GIVES_WAY)
    wait_for(lambda: not set(before) & set(site.triggers()))
    after = site.triggers()
    assert len(after) == len(before)
    assert newer.status() == "HEALTHY"
    assert "default: complete" in newer.manage("capture_zrank", "--check", "--database=default")
    for process in (worker, successor):
        process.terminate()
        process.communicate(timeout=60)
    assert site.marks_of_an_update("points") == MEMBERS
    assert site.marks_of_an_update("score") == 0


@pytest.mark.parametrize("capture", ["triggers", "signals"])
def test_an_older_worker_that_is_left_running(
    site: Site, watching: Callable[..., subprocess.Popen[str]], capture: str
) -> None:
    """It never takes the index from the release that migrated last, although no worker of that one is alive."""
    older, newer = (site.release(order, capture=capture) for order in ("-score", "-points"))
    older.go_live()
    newer.manage("migrate")
    newer.manage("sync_zrank")
    assert GIVES_WAY in older.manage("sync_zrank", fails=True)
    assert newer.status() == "HEALTHY"
    worker = watching(older)
    wait_until(worker, GIVES_WAY)
    wait_until(worker, GIVES_WAY)
    assert newer.status() == "HEALTHY"


def test_two_workers_that_poll_rarely(site: Site, watching: Callable[..., subprocess.Popen[str]]) -> None:
    """Of two releases: they take no turns, whichever starts first."""
    older, newer = site.release("-score"), site.release("-points")
    older.go_live()
    worker = watching(older, interval=2)
    newer.manage("migrate")
    watching(newer, interval=2)
    wait_until(worker, GIVES_WAY)
    build = newer.state_of()["build"]
    assert newer.status() == "HEALTHY"
    wait_until(worker, GIVES_WAY)
    wait_until(worker, GIVES_WAY)
    assert newer.status() == "HEALTHY"
    assert newer.state_of()["build"] == build


def test_a_declaration_without_a_release_that_migrates(site: Site) -> None:
    """Its workers leave the index alone, and say which command hands it over. The build of ``rebuild_zrank`` creates
    the triggers that it needs before it reads, and the former ones are dropped when it is live."""
    older, newer = site.release("-score"), site.release("-points")
    older.go_live()
    before = site.triggers()
    assert "run migrate or rebuild_zrank" in newer.manage("sync_zrank", fails=True)
    assert older.status() == "HEALTHY"
    assert site.triggers() == before
    newer.manage("rebuild_zrank")
    assert len(site.triggers()) == len(before)
    assert site.marks_of_an_update("points") == MEMBERS
    newer.manage("sync_zrank")
    assert newer.status() == "HEALTHY"


@pytest.mark.parametrize("command", ["rebuild_zrank", "migrate", "capture_zrank"])
def test_a_release_that_is_rolled_back(site: Site, command: str) -> None:
    """Its workers don't take the index back. All commands that show its state say what does."""
    older, newer = site.release("-score"), site.release("-points")
    older.go_live()
    before = site.triggers()
    newer.manage("migrate")
    newer.manage("sync_zrank")
    advice = "run migrate or rebuild_zrank"
    assert advice in older.manage("sync_zrank", fails=True)
    assert advice in older.manage("zrank_status")
    assert advice in older.state_of()["reason"]
    assert advice in older.manage("capture_zrank", "--check", fails=True)
    older.manage(command)
    older.manage("sync_zrank")
    assert older.status() == "HEALTHY"
    assert older.state_of()["reason"] == ""
    assert site.triggers() == before
    assert "default: complete" in older.manage("capture_zrank", "--check", "--database=default")
    assert advice in newer.manage("sync_zrank", fails=True)
    assert older.status() == "HEALTHY"


REMOVED = (
    "migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField('player', {column!r})])"
)
DROP_AND_WRITE = (
    "migrations.SeparateDatabaseAndState([migrations.RunSQL('ALTER TABLE players_player DROP COLUMN score')]), "
    "migrations.RunSQL(WRITE)"
)
DROPPED = [
    # The rows are written by the operation that drops the column, or by a later one.
    "migrations.RunSQL(['ALTER TABLE players_player DROP COLUMN level', WRITE])",
    DROP_AND_WRITE,
    "migrations.RunPython(drop)",
]


def test_a_column_that_is_dropped_in_two_deploys(site: Site) -> None:
    """The worker of the first release still runs when the column goes, in each of the ways that states don't show."""
    first = site.release(("-level", "-score", "-grade"))
    removed = ", ".join(REMOVED.format(column=column) for column in ("level", "score", "grade"))
    second = site.release("-points", removed, fields="points")
    third = site.release("-points", removed, *DROPPED, "migrations.RunPython(fail)", fields="points")
    first.go_live()
    before = site.triggers()
    second.manage("migrate")
    assert set(before) < set(site.triggers()), "the column is there, and what is live reads it"
    first.manage("sync_zrank")
    assert "a migration that fails" in third.manage("migrate", fails=True)
    assert site.marks_of_an_update("points") > 0, "a save fails, or leaves no mark"
    first.manage("sync_zrank", fails=True)
    assert site.marks_of_an_update("points") > 0
    second.manage("sync_zrank")
    assert not set(before) & set(site.triggers())
    assert site.marks_of_an_update("points") == MEMBERS
    second.manage("sync_zrank")
    assert second.status() == "HEALTHY"


def test_an_operation_that_works_for_long_before_it_drops_a_column(site: Site) -> None:
    """The worker of the first release looks at the triggers meanwhile. They are gone, and the column is still there."""
    removed = REMOVED.format(column="grade")
    first = site.release(("-score", "-grade"))
    second = site.release("-score", removed, fields="level score points")
    third = site.release("-score", removed, "migrations.RunPython(drop_later)", fields="level score points")
    first.go_live()
    second.manage("migrate")
    migrating = third.start("-m", "django", "migrate")
    wait_for((third.folder / "reached").exists)
    assert "are missing" in first.manage("sync_zrank", fails=True)
    (third.folder / "go on").touch()
    said, _ = migrating.communicate(timeout=60)
    assert migrating.returncode == 0, said
    assert site.marks_of_an_update("points") == 0
    assert site.marks_of_an_update("score") == MEMBERS
    third.manage("sync_zrank")
    assert third.status() == "HEALTHY"


def test_an_operation_that_fails_leaves_no_trigger_that_fails_writes(site: Site) -> None:
    """Its release drops at once what the one before reads, whose worker restores the triggers while the operation
    works: nobody has migrated yet. MariaDB undoes nothing of it."""
    first = site.release(("-score", "-grade"))
    second = site.release("-score", "migrations.RunPython(drop_later)", fields="level score points")
    first.go_live()
    migrating = second.start("-m", "django", "migrate")
    wait_for((second.folder / "reached").exists)
    first.manage("sync_zrank")
    assert site.marks_of_an_update("grade") == MEMBERS
    (second.folder / "go on").touch()
    said, _ = migrating.communicate(timeout=60)
    assert migrating.returncode != 0, said
    assert site.marks_of_an_update("points") == 0, "a write fails"


def dumped(site: Site) -> Callable[[], None]:
    """Dump the database, and return what restores it to an empty one."""
    name = site.names["default"]
    if DATABASE == "sqlite":
        with closing(site.connect(name)) as connection:
            text = "\n".join(connection.iterdump())

        def load() -> None:
            with closing(site.connect(name)) as connection:
                connection.executescript(text)

        return load
    if DATABASE == "postgresql":
        found = shutil.which("pg_dump") or str(max(Path("/usr/lib/postgresql").glob("*/bin/pg_dump")))
        at = ["-h", HOST, *(["-p", PORT] if PORT else []), "-U", USER, "-d", name]
        dump, restore = [found, *at], [str(Path(found).with_name("psql")), *at, "-q", "-v", "ON_ERROR_STOP=1"]
    else:
        at = [
            "--no-defaults",
            f"--socket={HOST}" if HOST.startswith("/") else f"--host={HOST}",
            f"--user={USER}",
            name,
        ]
        is_mariadb = shutil.which("mariadb")
        dump = ["mariadb-dump" if is_mariadb else "mysqldump", *at]
        restore = [is_mariadb or "mysql", *at]
    content = subprocess.run(dump, check=True, capture_output=True, timeout=60).stdout
    return lambda: void(subprocess.run(restore, check=True, capture_output=True, input=content, timeout=60))


def void(done: object) -> None:
    """Return nothing."""


def test_a_database_that_is_dumped_and_restored(site: Site) -> None:
    """Its triggers are the same, and changes after the dump are gone from the index, too."""
    release = site.release("-score")
    release.go_live()
    before = site.triggers()
    restore = dumped(site)
    site.drop("default")
    site.create("default")
    restore()
    assert site.triggers() == before
    assert "outdated" not in release.manage("migrate", "--verbosity=0")
    assert site.triggers() == before
    assert "default: complete" in release.manage("capture_zrank", "--check", "--database=default")
    release.manage("sync_zrank")
    assert site.triggers() == before
    assert site.marks_of_an_update("score") == MEMBERS
    release.manage("sync_zrank")
    assert release.status() == "HEALTHY"


def test_a_fixture(site: Site) -> None:
    """Of a whole project, while marks wait: it has no rows of the app's tables, and loads into an empty database."""
    release = site.release("-score")
    release.go_live()
    assert site.marks_of_an_update("score") == MEMBERS
    fixture = release.folder / "all.json"
    # Django creates the rows of these two itself, after a flush.
    left_out = ["--exclude=contenttypes", "--exclude=auth.permission"]
    release.manage("dumpdata", "--output", str(fixture), "--verbosity=0", *left_out)
    labels = {row["model"] for row in json.loads(fixture.read_text())}
    assert "players.player" in labels
    assert not {label for label in labels if label.startswith("zrank.")}
    everything = json.loads(release.manage("dumpdata", "--all", "--exclude=zrank"))
    assert labels <= {row["model"] for row in everything}
    assert not {row["model"] for row in everything if row["model"].startswith("zrank.")}
    before = site.triggers()
    release.manage("flush", "--no-input", "--verbosity=0")
    release.manage("loaddata", str(fixture))
    assert site.sql("SELECT count(*) FROM players_player") == [MEMBERS]
    release.manage("rebuild_zrank")
    assert site.triggers() == before
    site.sql("DELETE FROM zrank_mark")
    assert site.marks_of_an_update("score") == MEMBERS


@pytest.mark.parametrize("knows", [True, False], ids=["noticed", "unnoticed"])
def test_an_index_that_moves_to_another_database(site: Site, zrank_server: Any, knows: bool) -> None:
    """Its former database keeps no triggers, and gets no more marks. ``knows``: False if Redis was empty meanwhile, so
    that nobody can tell which database has made the former build: it is left to a command."""
    older, newer = site.release("-score"), site.release("-score", using="other")
    older.go_live()
    assert site.marks_of_an_update("score") == MEMBERS
    newer.manage("migrate", "--verbosity=0")
    assert "default: outdated: zrank_capture_" in newer.manage("capture_zrank", "--check", fails=True)
    if not knows:
        import redis

        with closing(redis.Redis.from_url(zrank_server.url)) as client:
            for key in client.scan_iter(f"{site.prefix}:*"):
                client.delete(key)
    newer.go_live("other")
    if not knows:
        said = newer.manage("prune_zrank", "--dry-run")
        assert f"player: {len(site.triggers()) + (DATABASE == 'mariadb')} triggers, {MEMBERS} marks" in said
        assert "in the database 'default' would be removed" in said
        assert site.triggers()
        assert "in the database 'default' removed" in newer.manage("prune_zrank")
    assert site.triggers() == []
    assert site.marks_of_an_update("score") == 0
    assert site.marks() == 0
    assert site.sql("SELECT count(*) FROM zrank_build") == [0]
    assert newer.manage("prune_zrank") == "There is nothing to remove.\n"
    assert "default: complete\nother: complete" in newer.manage("capture_zrank", "--check")
    assert len(site.triggers("other")) > 0
    assert site.marks_of_an_update("score", "other") == MEMBERS
    older.manage("sync_zrank", fails=True)
    assert site.triggers() == [], "a process of the older release puts them back"


SUBMIT = """
from players.models import Player
from players.zrank import PlayerRank
first, second = Player.objects.order_by("score").values_list("pk", flat=True)[:2]
PlayerRank.scores.increment({first: 500, second: 500})
"""


@pytest.mark.part("write_behind")
@pytest.mark.parametrize("is_given_up", [False, True])
def test_pending_scores_of_an_index_that_moves_to_another_database(site: Site, is_given_up: bool) -> None:
    """A build from the other database, which would lose them, is refused until they are in their column."""
    older = site.release("-score", write_behind="increment")
    newer = site.release("-score", using="other", write_behind="increment")
    older.go_live()
    older.run(SUBMIT)
    newer.run(
        "from django.core.management import call_command\n"
        f"call_command('migrate', database='other', verbosity=0)\n{POPULATE.format(alias='other')}"
    )
    said = newer.manage("rebuild_zrank", fails=True)
    assert "'player': the scores of 2 members are pending for the database 'default'" in said
    assert "a build from 'other' would lose them" in said
    assert "sync_zrank of the release that uses the database 'default'" in said
    newer.manage("sync_zrank", fails=True)
    assert site.sql("SELECT count(*) FROM players_player WHERE score >= 500") == [0]
    assert older.status() == "HEALTHY"
    if is_given_up:
        newer.manage("rebuild_zrank", "--discard-pending")
    else:
        older.manage("sync_zrank")
        assert site.sql("SELECT count(*) FROM players_player WHERE score >= 500") == [2]
        newer.manage("rebuild_zrank")
    newer.manage("sync_zrank")
    assert newer.status() == "HEALTHY"
    assert site.sql("SELECT count(*) FROM players_player WHERE score >= 500", "other") == [0]


@pytest.mark.skipif(
    DATABASE != "postgresql", reason="Elsewhere, readers let triggers be dropped, or none be created"
)
def test_a_reader_that_is_open_while_somebody_migrates(site: Site) -> None:
    older, newer = site.release("-score"), site.release("-points")
    older.go_live()
    before = site.triggers()
    with closing(site.connect(site.names["default"])) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM players_player").fetchone()
        newer.manage("migrate")
        assert set(before) < set(site.triggers())
        newer.manage("sync_zrank")
        assert set(before) < set(site.triggers()), "dropping them would wait for the reader"
        assert newer.status() == "HEALTHY"
        assert "outdated" in newer.manage("capture_zrank", "--check", fails=True)
    newer.manage("sync_zrank")
    assert not set(before) & set(site.triggers())
    assert "default: complete" in newer.manage("capture_zrank", "--check", "--database=default")


def test_a_column_that_is_gone(site: Site) -> None:
    """Its triggers can't be put back. Each command that checks them says why, and none claims that it has."""
    release = site.release("-score")
    release.go_live()
    release.manage("capture_zrank", "--drop")
    site.sql("ALTER TABLE players_player DROP COLUMN score")
    why = "players_player has no column 'score'"
    said = release.manage("sync_zrank", fails=True)
    assert why in said
    assert "put back" not in said
    assert why in release.manage("capture_zrank", "--check", "--database=default", fails=True)
    assert why in release.manage("capture_zrank", "--database=default", fails=True)
    assert why in release.manage("zrank_status")
    assert release.status() == "TRIGGERS_MISSING"
    site.sql("ALTER TABLE players_player ADD COLUMN score integer NOT NULL DEFAULT 5")
    release.manage("sync_zrank")
    assert release.status() == "HEALTHY"
    assert site.marks_of_an_update("score") == MEMBERS
