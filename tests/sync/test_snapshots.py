"""Saves on connections whose statements see an older state, or what may be rolled back, as Django doesn't know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from django_zrank.models import Mark
from django_zrank.sync import drain as draining
from django_zrank.sync.drain import drain
from django_zrank.sync.rebuild import rebuild
from tests.sync.conftest import execute
from tests.sync.interruptions import count_steps, interrupted
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ten_players")]

INDEX = PlayerAscending.instance()
sqlite_only = pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases read rows first")


def elsewhere(work: Callable[[], Any]) -> Any:
    """Return the result of what another process does."""

    def run() -> Any:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


@contextmanager
def reading() -> Iterator[Player]:
    """A loop over all players, at the first one."""
    rows = Player.objects.order_by("pk").iterator(chunk_size=2)
    yield next(rows)
    rows.close()


def save(player: Player, level: int) -> None:
    draining._done.clear()  # as if the last drain was a second ago
    player.level = level
    player.save()


def save_another_first(player: Player, level: int) -> None:
    """Save a row in a transaction, after which another row is saved before the first one is pushed: this takes a token
    after the commit."""
    with transaction.atomic():
        other = Player.objects.order_by("pk")[1]
        # Robust: what others have written since refuses a write on an old snapshot.
        transaction.on_commit(lambda: save(other, level), robust=True)
        save(player, level)


@sqlite_only
@pytest.mark.parametrize("save", [save, save_another_first])
def test_a_save_while_rows_are_read_replaces_no_newer_change(save: Callable[[Player, int], None]) -> None:
    """All statements of a connection see the database as it was when the first one began that isn't done. Another
    process changes the row, and drains, before a step that follows the save, or after all."""
    last = count_steps(lambda: save(Player.objects.order_by("pk")[0], 50))
    assert last > 5
    for at in range(2, last + 1):
        changes: list[int] = []
        with reading() as player:

            def change(
                step: int, player: Player = player, at: int = at, changes: list[int] = changes
            ) -> None:
                if step >= at and not changes:
                    changes.append(step)
                    elsewhere(lambda: Player.objects.filter(pk=player.pk).update(level=900 + at))
                    elsewhere(lambda: drain(INDEX))

            with interrupted(change):
                save(player, 100 + at)
            change(last)
        assert contents(PlayerAscending)[str(player.pk)] == 900 + at
    drain(INDEX)
    assert not Mark.objects.filter(index=INDEX.name).exists()
    assert_mirrors(PlayerAscending)


@sqlite_only
def test_what_a_save_while_rows_are_read_leaves_is_drained_by_the_next_one() -> None:
    with reading() as player:
        save(player, 50)
    assert contents(PlayerAscending)[str(player.pk)] == 0
    save(player, 60)
    assert contents(PlayerAscending)[str(player.pk)] == 60
    with reading():
        pass
    rows = list(Player.objects.order_by("pk").iterator())
    for at, row in enumerate(rows):
        save(row, 70 + at)
    assert_mirrors(PlayerAscending)


@sqlite_only
@pytest.mark.parametrize("work", [drain, rebuild])
def test_nothing_else_reads_an_old_snapshot(work: Callable[..., Any]) -> None:
    with reading(), pytest.raises(TransactionManagementError, match="while rows of a query are being read"):
        work(INDEX)
    work(INDEX)


@pytest.mark.skipif(connection.vendor == "mysql", reason="its client doesn't tell of a transaction")
@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_what_is_saved_after_begin_is_not_pushed(end: str) -> None:
    player = Player.objects.order_by("pk")[0]
    execute("BEGIN")
    save(player, 50)
    with pytest.raises(TransactionManagementError, match="in a transaction that BEGIN has opened"):
        drain(INDEX)
    execute(end)
    drain(INDEX)
    assert contents(PlayerAscending)[str(player.pk)] == (50 if end == "COMMIT" else 0)
    assert_mirrors(PlayerAscending)
