"""Tables that triggers can't watch: `check` refuses them, or `sync_zrank` says so."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.models import Mark
from django_zrank.sync.health import Status, examine
from tests.sync.capturing import installed, only
from tests.sync.conftest import execute
from tests.sync.mirror import assert_mirrors
from tests.torture.databases import PostgreSQL

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


def checked(**options: Any) -> list[str]:
    """What is said of the index by ``manage.py check``, or as ``migrate`` checks its database."""
    return [message.msg for message in run_checks(**options) if message.id == "zrank.E043"]


def test_a_view(rank_table: Callable[..., type[RankIndex]]) -> None:
    rank_table(
        "CREATE TABLE watched_rows (id int PRIMARY KEY, score int)",
        "CREATE VIEW watched AS SELECT id, score FROM watched_rows",
    )
    (message,) = checked(databases=["default"])
    assert message == "WatchedRank: triggers can't watch watched, which is a view."
    with pytest.raises(CommandError, match="watched, which is a view"):
        call_command("check", databases=["default"])
    assert checked() == []  # no database is asked


@only("mysql")
def test_an_engine_without_transactions(rank_table: Callable[..., type[RankIndex]]) -> None:
    rank_table("CREATE TABLE watched (id int PRIMARY KEY, score int) ENGINE=MyISAM")
    (message,) = checked(databases=["default"])
    assert "the engine MyISAM, which has no transactions" in message
    assert "the engine MyISAM" in synced()


def synced() -> str:
    """The errors of ``sync_zrank``."""
    errors = StringIO()
    with suppress(CommandError):
        call_command("sync_zrank", stdout=StringIO(), stderr=errors)
    return errors.getvalue()


@only("sqlite", "mysql")
def test_columns_that_are_spelled_in_capitals(rank_table: Callable[..., type[RankIndex]]) -> None:
    """These databases don't care."""
    index = rank_table("CREATE TABLE watched (ID int PRIMARY KEY, Score int)")
    execute("INSERT INTO watched VALUES (1, 10), (2, 20)")
    assert synced() == ""
    execute("UPDATE watched SET SCORE = 30 WHERE id = 1")
    assert synced() == ""
    assert_mirrors(index)
    triggers.install("default", [index.instance()])
    execute("UPDATE watched SET score = 40 WHERE id = 2")
    assert synced() == ""
    assert_mirrors(index)


@pytest.fixture
def publisher() -> Iterator[PostgreSQL]:
    """Another server, which publishes its table ``watched``."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        server = PostgreSQL(Path(name))
        server.private = True
        server.run(f"{server.program('initdb')} -D {name}/cluster -U postgres -A trust -E UTF8 --no-sync")
        server.up(" -c wal_level=logical")
        try:
            yield server
        finally:
            server.stop()


@only("postgresql")
def test_a_table_that_is_fed_by_logical_replication(
    rank_table: Callable[..., type[RankIndex]], publisher: PostgreSQL
) -> None:
    import psycopg

    table = "CREATE TABLE watched (id int PRIMARY KEY, score int)"
    index = rank_table(table)
    assert synced() == ""
    where = f"host={publisher.folder} user=postgres dbname=postgres"
    with psycopg.connect(where, autocommit=True) as other:
        other.execute(table)
        other.execute("CREATE PUBLICATION fed FOR TABLE watched")
        execute(f"CREATE SUBSCRIPTION fed CONNECTION '{where}' PUBLICATION fed")
        try:
            other.execute("INSERT INTO watched VALUES (1, 10)")
            until = monotonic() + 60
            while not index.model.objects.exists():
                assert monotonic() < until
            assert not Mark.objects.filter(index="watched", member__isnull=False).exists()
            assert "watched is written by a subscription" in synced()
            other.execute("UPDATE watched SET score = 20")
            while index.model.objects.get().score != 20:
                assert monotonic() < until
        finally:
            execute("DROP SUBSCRIPTION fed")
    assert synced() == ""
    assert_mirrors(index)
    assert index.ranking.count() == 1


def programs() -> tuple[list[str], list[str]]:
    """What dumps the table, and what restores it."""
    database = connection.settings_dict
    if connection.vendor == "postgresql":
        at = ["-h", database["HOST"], "-U", database["USER"], "-d", database["NAME"]]
        dump = [PostgreSQL.program("pg_dump"), *at, "--table=watched", "--clean"]
        return dump, [PostgreSQL.program("psql"), *at, "--quiet", "--set=ON_ERROR_STOP=1"]
    at = ["--no-defaults", f"--socket={database['HOST']}", f"--user={database['USER']}", database["NAME"]]
    is_mariadb = shutil.which("mariadb")
    return ["mariadb-dump" if is_mariadb else "mysqldump", *at, "watched"], [is_mariadb or "mysql", *at]


@only("postgresql", "mysql")
def test_a_table_that_was_restored_alone(rank_table: Callable[..., type[RankIndex]]) -> None:
    """Its triggers came with it. Of its rows nothing was marked since."""
    index = rank_table("CREATE TABLE watched (id int PRIMARY KEY, score int)")
    execute("INSERT INTO watched VALUES (1, 5), (2, 6)")
    assert synced() == ""
    dump, restore = programs()
    dumped = subprocess.run(dump, check=True, capture_output=True).stdout
    execute("UPDATE watched SET score = 9", "DELETE FROM watched WHERE id = 2")
    assert synced() == ""
    assert (index.ranking.count(), examine(index.instance())) == (1, Status.HEALTHY)
    subprocess.run(restore, check=True, input=dumped, capture_output=True)
    assert any("watched" in trigger.table for trigger in installed()), "the triggers came with it"
    assert examine(index.instance()) is Status.TRIGGERS_MISSING
    assert synced() == ""
    assert_mirrors(index)
    assert index.ranking.score(2) == 6
