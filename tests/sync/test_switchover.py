"""A database that is switched over: connections that stay open lead to what is now a replica, which lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_zrank.models import Mark
from django_zrank.store import Change, Store
from django_zrank.sync import push, signal_handlers
from django_zrank.sync.drain import drain
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending
from tests.torture.databases import PostgreSQL
from tests.writes import apply_changes, begin_write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ten_players")]

INDEX = PlayerAscending.instance()


def change(level: int) -> str:
    """Change a player by ``update()``, which only a mark tells of."""
    first = Player.objects.order_by("pk").values_list("pk", flat=True)[0]
    assert Player.objects.filter(pk=first).update(level=level) == 1
    return str(first)


@pytest.mark.alone
@pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB's variable")
def test_a_server_that_takes_no_writes_is_not_read() -> None:
    member = change(50)
    with connection.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(OperationalError, match="may be a standby now"):
            drain(INDEX)
        assert contents(PlayerAscending)[member] != 50
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET GLOBAL read_only = 0")
    assert drain(INDEX) == 1
    assert_mirrors(PlayerAscending)


FENCE, RELEASE = {
    "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
    "mysql": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
}.get(connection.vendor, ("", ""))


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Fences the server once the transaction is committed, before what it has saved is pushed. Saves don't drain."""
    monkeypatch.setattr(signal_handlers, "drain_soon", lambda index: None)
    yield lambda: transaction.on_commit(lambda: execute(FENCE))
    execute(RELEASE)


def save(player: Player, level: int) -> None:
    player.level = level
    player.save()


@pytest.mark.alone
@pytest.mark.skipif(not FENCE, reason="SQLite has no servers")
@pytest.mark.parametrize("is_newer", [False, True])
def test_a_save_reads_no_fenced_server_under_a_later_token(
    is_newer: bool, fenced: Callable[[], None]
) -> None:
    """Between the commit and the push, another server may take over, and the row may change there. If the token was
    taken after that, only a drain there can tell. An earlier one is refused, and then is a later one."""
    player, store = Player.objects.order_by("pk")[0], Store.of(INDEX)
    save(player, 40)
    if not is_newer:
        push._kept.clear()
    with transaction.atomic():
        fenced()
        # Redis is told of the newer change before the row is read here.
        if is_newer:
            change_elsewhere = [Change(str(player.pk), 60)]
            transaction.on_commit(lambda: apply_changes(store, begin_write(store), change_elsewhere) and None)
        save(player, 50)
    execute(RELEASE)
    assert contents(PlayerAscending)[str(player.pk)] == (60 if is_newer else 40)
    drain(INDEX)
    assert_mirrors(PlayerAscending)


@pytest.mark.alone
@pytest.mark.skipif(not FENCE, reason="SQLite has no servers")
def test_a_save_reads_any_server_under_an_earlier_token(fenced: Callable[[], None]) -> None:
    """Whatever it doesn't see there was written later, and would have refused it."""
    player = Player.objects.order_by("pk")[0]
    save(player, 40)
    with transaction.atomic():
        fenced()
        save(player, 50)
    execute(RELEASE)
    assert contents(PlayerAscending)[str(player.pk)] == 50


def fetch(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@pytest.fixture
def standby() -> Iterator[dict[str, Any]]:
    """The settings of a hot standby of the database, which has replayed all that was committed, and nothing further."""
    primary = connection.settings_dict
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        server = PostgreSQL(Path(name))
        server.private = True
        server.run(
            f"{server.program('pg_basebackup')} -h {primary['HOST']} -U {primary['USER']} -D {name}/cluster"
            " --write-recovery-conf --checkpoint=fast --no-sync"
        )
        needed = "max_connections", "max_prepared_transactions"  # at least as many as on the primary
        server.up("".join(f" -c {name}={fetch(f'SHOW {name}')}" for name in needed))
        try:
            yield {**primary, "HOST": name}
        finally:
            server.stop()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's standby")
def test_a_standby_that_lags_is_not_read(standby: dict[str, Any]) -> None:
    """It still has a mark that another process has processed, and the row as it was then."""
    member = change(50)
    written, primary = fetch("SELECT pg_current_wal_insert_lsn()"), connection.settings_dict
    try:
        connection.close()
        connection.settings_dict = standby
        deadline = monotonic() + 30
        while not fetch(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") and monotonic() < deadline:
            sleep(0.02)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_wal_replay_pause()")
        while fetch("SELECT pg_get_wal_replay_pause_state()") != "paused" and monotonic() < deadline:
            sleep(0.02)
        connection.close()
        connection.settings_dict = primary
        change(60)
        drain(INDEX)
        assert contents(PlayerAscending)[member] == 60
        connection.close()
        connection.settings_dict = standby
        assert Mark.objects.exists()
        with pytest.raises(OperationalError, match="may be a standby now"):
            drain(INDEX)
    finally:
        connections["default"].close()
        connection.settings_dict = primary
    assert contents(PlayerAscending)[member] == 60
    assert_mirrors(PlayerAscending)
