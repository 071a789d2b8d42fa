"""Drains end, hold up no save, and try again where another transaction was in the way."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections

from django_zrank.exceptions import Busy
from django_zrank.signals import drained
from django_zrank.sync import drain as drain_module
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from tests.links import Link
from tests.servers import RedisServer
from tests.sync.conftest import change_all, use_redis
from tests.sync.mirror import assert_mirrors, contents
from tests.sync.processes import manage
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ten_players")]

INDEX = PlayerAscending.instance()

_TOO_MANY = 50
"""Batches after which a steady writer gives up, so that a test fails instead of never ending."""


@contextmanager
def writing_steadily() -> Iterator[list[int]]:
    """After each batch of a drain there are new marks. Counts the batches."""
    batches: list[int] = []

    def go_on(sender: Any, **kwargs: Any) -> None:
        batches.append(kwargs["marks"])
        if len(batches) < _TOO_MANY:
            change_all(100 + len(batches))

    drained.connect(go_on)
    try:
        yield batches
    finally:
        drained.disconnect(go_on)


class TestSteadyWrites:
    def test_a_drain_works_off_what_waited_when_it_began(self) -> None:
        change_all(50)
        with writing_steadily() as batches:
            assert drain(INDEX, batch_size=5) == 10
        assert batches == [5, 5]
        assert waiting_marks(INDEX).count() == 20

    def test_a_command_ends_too(self) -> None:
        change_all(50)
        with writing_steadily() as batches:
            call_command("sync_zrank", "ascending", stdout=StringIO())
        assert len(batches) < 5

    def test_a_replay_is_finished(self, settings: Any) -> None:
        """The index can be read again as soon as what was put back is done, whatever has come since."""
        binary = INDEX.ranking.store.client.info("server")["executable"]
        with RedisServer(binary) as a, RedisServer(binary) as b, Link(a.port) as wire:
            use_redis(settings, a.url)
            rebuild(INDEX)
            b.follow(wire.port)
            call_command("sync_zrank", "ascending", stdout=StringIO())
            wire.cut()
            change_all(50)
            drain(INDEX)
            b.promote()
            use_redis(settings, b.url)
            with writing_steadily() as batches:
                for _ in range(2):
                    call_command("sync_zrank", "ascending", stdout=StringIO())
                    assert waiting_marks(INDEX).exists()
                    assert examine(INDEX) is Status.HEALTHY
                    assert len(PlayerAscending.ranking.top(10)) == 10
            assert len(batches) < 10
            drain(INDEX)
            assert_mirrors(PlayerAscending)


@contextmanager
def frozen_in_unmark() -> Iterator[None]:
    """A ``sync_zrank`` that was stopped inside unmark(), its transaction open. It must stay so: who waits for it, waits
    until it is killed after a while."""
    with manage("sync_zrank", "ascending", freeze="zrank_batch") as process:
        # SIGSTOP is all that it says of where it is; WNOWAIT leaves the child to Popen.
        if not _is_stopped(process, 60):
            process.kill()
            pytest.fail(f"It has not come as far as that: {process.communicate()}")
        mercy = threading.Timer(20, process.kill)
        mercy.start()
        try:
            yield
            assert process.poll() is None, "somebody waited for it"
        finally:
            mercy.cancel()
            process.kill()


def _is_stopped(process: subprocess.Popen[str], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            return found.si_code == os.CLD_STOPPED
        time.sleep(0.01)
    return False


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time: a frozen one stops all")
class TestFrozen:
    """A drain that was stopped in the middle of a transaction: a paused VM, SIGSTOP."""

    def test_saves_go_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each drains, too. The patience of five that waited would outlast the frozen one."""
        monkeypatch.setattr(drain_module, "_due", lambda what, index, seconds: True)
        change_all(50)
        with frozen_in_unmark():
            for player in Player.objects.order_by("pk")[:5]:
                player.level = 60
                player.save()
                assert PlayerAscending.ranking.score(player.pk) == 60
        drain(INDEX)
        assert_mirrors(PlayerAscending)

    def test_other_drains_go_on_or_give_up(self) -> None:
        """They may take away what the frozen one doesn't hold, and wait for nothing."""
        change_all(50)
        with frozen_in_unmark():
            change_all(60)
            with suppress(Busy):  # what it read waits on
                drain(INDEX, limit=1000, patience=0.5)
        for _ in range(2):
            call_command("sync_zrank", "ascending", stdout=StringIO())
        assert not waiting_marks(INDEX).exists()
        assert_mirrors(PlayerAscending)

    def test_a_rebuild_outlasts_it(self) -> None:
        """The database rolls its transaction back after a few seconds."""
        change_all(50)
        with frozen_in_unmark():
            change_all(60)
            call_command("rebuild_zrank", "ascending", stdout=StringIO())
        drain(INDEX)
        assert_mirrors(PlayerAscending)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one level")
@pytest.mark.parametrize("isolated", ["SERIALIZABLE", "REPEATABLE_READ"], indirect=True)
def test_conflicting_transactions_are_tried_again(isolated: None) -> None:
    """Several ``sync_zrank`` and writers at once, at a level where a conflict is an error and no wait."""
    stop, failures = threading.Event(), []

    def repeat(task: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                task()
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(error)
            stop.set()
        finally:
            connections.close_all()

    def sync() -> None:
        call_command("sync_zrank", "ascending", stdout=StringIO())

    pks = list(Player.objects.values_list("pk", flat=True))
    threads = [threading.Thread(target=repeat, args=[task]) for task in (sync, sync, sync)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 1.5
    for level in range(10**6):
        if stop.is_set() or time.monotonic() > until:
            break
        with suppress(OperationalError):  # what a project's own code gets at such a level
            change_all(level)
        push(INDEX, pks[:1])
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    sync()
    assert_mirrors(PlayerAscending)
    assert set(contents(PlayerAscending)) == set(map(str, pks))
