"""Failovers between real servers, back and forth: what an abandoned history took is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from redis import Redis

from django_zrank.exceptions import IndexUnavailable, IndexUnhealthy
from django_zrank.models import Batch, Mark
from django_zrank.sync import drain as drains
from django_zrank.sync import marks
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine, repair
from django_zrank.sync.in_step import breaker
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from tests.links import Link
from tests.recoding import locked_anyway
from tests.sentinels import Sentinels
from tests.servers import RedisServer
from tests.sync.conftest import change_all, refused_within, use_redis
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

INDEX = PlayerAscending.instance()


@pytest.fixture
def servers(zrank: Redis) -> Iterator[Callable[[], RedisServer]]:
    """Starts servers like that of the session."""
    binary: str = zrank.info("server")["executable"]
    started: list[RedisServer] = []

    def start() -> RedisServer:
        server = RedisServer(binary)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()
    breaker.reset()


@pytest.fixture
def a(servers: Callable[[], RedisServer]) -> RedisServer:
    """The first primary."""
    return servers()


@pytest.fixture
def b(servers: Callable[[], RedisServer]) -> RedisServer:
    """To be its replica."""
    return servers()


@pytest.fixture
def front(a: RedisServer, settings: Any) -> Iterator[Link]:
    """The address that this process knows. It leads to ``a``, which holds the index."""
    with Link(a.port) as link:
        use_redis(settings, link.url)
        Player.objects.bulk_create([Player(level=level) for level in range(10)])
        Mark.objects.all().delete()
        rebuild(INDEX)
        yield link


@pytest.fixture
def wire(a: RedisServer) -> Iterator[Link]:
    """The link through which a replica follows ``a``."""
    with Link(a.port) as link:
        yield link


def lead(front: Link, to: RedisServer) -> None:
    """Let every client find another server at the same address."""
    front.cut()
    front.route(to.port)
    front.restore()


def sync() -> None:
    call_command("sync_zrank", "ascending", stdout=StringIO(), stderr=StringIO())


def sync_until_right(tries: int = 3) -> None:
    """A command that fails is run again, as cron does."""
    for left in reversed(range(tries)):
        try:
            sync()
        except CommandError:
            if not left:
                raise
        else:
            return


def assert_right() -> None:
    """The promise: no mark waits, the index is healthy, and Redis holds what the database holds."""
    assert not waiting_marks(INDEX).exists()
    assert examine(INDEX) is Status.HEALTHY
    assert_mirrors(PlayerAscending)


def read_until_refused(seconds: float) -> bool:
    return refused_within(seconds, PlayerAscending, IndexUnhealthy)


class TestBackAndForth:
    """A → B → A, with a full resync in between: the same process, the same hash, and other data."""

    @pytest.fixture(autouse=True)
    def failovers(self, front: Link, a: RedisServer, b: RedisServer, wire: Link) -> None:
        b.follow(wire.port)
        change_all(50)
        sync()  # which trusts it although a first replica has attached
        assert a.ask("WAIT", 1, 5000) == 1
        wire.cut()  # the replica falls behind
        change_all(60)
        drain(INDEX)
        b.promote()
        a.follow(b.port)
        a.promote()

    def test_what_was_lost_is_noticed_and_replayed(self) -> None:
        assert examine(INDEX) is not Status.HEALTHY
        assert read_until_refused(2)
        sync()
        assert_right()

    def test_what_is_pushed_before_anybody_looks_hides_nothing(self, b: RedisServer) -> None:
        """It would lift the place that was applied past that of what was lost."""
        for player in Player.objects.all()[:3]:
            player.save()
        sync_until_right()
        assert_right()

    def test_once_more(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        """The same again from where it has led, with other changes."""
        sync()
        b.follow(a.port)
        with Link(a.port) as wire:
            b.follow(wire.port)
            wire.cut()
            change_all(70)
            drain(INDEX)
            b.promote()
        a.follow(b.port)
        a.promote()
        sync()
        assert_right()

    def test_a_failover_while_the_replay_waits(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        """To a server that has not heard of the replay. Its marks wait on, and so must the readers."""
        b.follow(a.port)
        with Link(a.port) as wire:
            b.follow(wire.port)
            wire.cut()
            repair(INDEX)
            assert examine(INDEX) is Status.BEHIND
        b.promote()
        lead(front, b)
        repair(INDEX)
        assert waiting_marks(INDEX).exists()
        assert examine(INDEX) is Status.BEHIND
        assert read_until_refused(2)
        sync()
        assert_right()


class TestTheFirstOneComesBack:
    """A was cut off, B was promoted, trusted and written to; B dies, and A comes back without a restart."""

    @pytest.fixture(autouse=True)
    def failovers(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        b.follow(a.port)
        sync()
        b.promote()
        lead(front, b)
        sync()
        change_all(60)
        drain(INDEX)
        assert_right()
        b.kill()
        lead(front, a)

    def test_what_it_missed_is_noticed_and_replayed(self) -> None:
        assert examine(INDEX) is not Status.HEALTHY
        assert read_until_refused(2)
        sync()
        assert_right()
        for level in (70, 80):
            change_all(level)
            sync()
        assert_right()


class TestSplitBrain:
    """Both take pushes, each from its own side."""

    @pytest.fixture(autouse=True)
    def partition(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        b.follow(a.port)
        sync()
        b.promote()

    def test_the_one_that_was_left_is_kept(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        """B is trusted and works marks off; A's newest write is later than those. Then B is thrown away."""
        lead(front, b)
        sync()
        change_all(60)
        drain(INDEX)
        lead(front, a)
        with suppress(IndexUnavailable):
            push(INDEX, [Player.objects.earliest("pk").pk])
        b.kill()
        sync_until_right()
        assert_right()

    def test_the_new_one_is_kept(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        """A works marks off until B is trusted, and takes away none after that."""
        change_all(60)
        drain(INDEX)
        lead(front, b)
        sync()
        lead(front, a)
        change_all(70)
        with suppress(IndexUnavailable):
            drain(INDEX)
        assert waiting_marks(INDEX).exists()
        lead(front, b)
        sync()
        assert_right()

    def test_to_and_fro(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        """Each is trusted in turn, works marks off and takes pushes, and never hears of the other."""
        for level, server in enumerate([b, a, b, a], 60):
            lead(front, server)
            for player in Player.objects.all()[:2]:
                player.save()
            sync_until_right()
            change_all(level)
            drain(INDEX)
        assert_right()

    def test_a_reader_on_the_abandoned_side_is_turned_away(
        self, front: Link, a: RedisServer, b: RedisServer, settings: Any
    ) -> None:
        """Another process trusts B. To A nothing has happened, but the database notes another."""
        PlayerAscending.ranking.top(3)
        use_redis(settings, b.url)
        with manage("sync_zrank", "ascending") as process:
            said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        use_redis(settings, front.url)
        assert read_until_refused(3)


class TestPlannedFailover:
    """The address leads to the new primary, and connections stay open to what is a replica now."""

    def test_writes_find_the_new_primary(self, front: Link, a: RedisServer, b: RedisServer) -> None:
        b.follow(a.port)
        sync()
        push(INDEX, [0])
        assert a.ask("WAIT", 1, 5000) == 1
        b.promote()
        a.follow(b.port)
        front.route(b.port)

        change_all(60)
        Player.objects.earliest("pk").save()  # its push is refused
        sync_until_right()
        assert_right()
        breaker.reset()  # RETRY_AFTER
        player = Player.objects.earliest("pk")
        player.level = 70
        player.save()
        assert PlayerAscending.ranking.score(player.pk) == 70

    def test_sentinels(self, front: Link, a: RedisServer, b: RedisServer, settings: Any) -> None:
        """Through django-redis's client, which asks Sentinels for the address."""
        b.follow(a.port)
        with Sentinels(a.binary, a.port) as sentinels:
            use_redis(settings, sentinels.url, **sentinels.options)
            sync()
            assert async_to_sync(PlayerAscending.ranking.acount)() == PlayerAscending.ranking.count()
            sentinels.fail_over()
            change_all(60)
            Player.objects.earliest("pk").save()
            sync_until_right(10)
            assert_right()


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "without the fence"])
def test_a_drain_that_a_failover_overtakes(
    is_fenced: bool,
    front: Link,
    a: RedisServer,
    b: RedisServer,
    wire: Link,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has written to A what B lacks, and works its marks off when the replay for B has begun: nothing would bring
    them back.

    Torture does not show this: wrong are only marks that nobody else has drained by then, until their members' next
    write.
    """
    b.follow(wire.port)
    change_all(50)
    sync()
    assert a.ask("WAIT", 1, 5000) == 1
    wire.cut()
    change_all(60)

    def overtaken(*args: Any, **kwargs: Any) -> bool:
        monkeypatch.undo()
        b.promote()
        lead(front, b)
        assert repair(INDEX) is Status.RESTARTED
        if not is_fenced:
            monkeypatch.setattr(marks, "lock", locked_anyway)
        return marks.unmark(*args, **kwargs)

    monkeypatch.setattr(drains, "unmark", overtaken)
    drain(INDEX)
    assert waiting_marks(INDEX).exists() is is_fenced
    sync()
    if is_fenced:
        assert_right()
    else:
        assert examine(INDEX) is Status.HEALTHY  # nobody would ever know
        with pytest.raises(AssertionError):
            assert_mirrors(PlayerAscending)


def test_the_first_replica_loses_nothing(front: Link, a: RedisServer, b: RedisServer) -> None:
    """``master_replid`` changes when it attaches, and ``master_replid2`` is all zeros: nothing is replayed, and
    nobody is turned away."""
    change_all(60)
    drain(INDEX)
    batches = Batch.objects.count()
    assert batches
    before = a.ask("INFO", "replication")["master_replid"]
    b.follow(a.port)
    assert a.ask("INFO", "replication")["master_replid"] != before

    assert not read_until_refused(1.5)
    sync()
    assert Batch.objects.count() == batches
    Player.objects.earliest("pk").save()
    sync()
    assert_right()
    assert not read_until_refused(1.5)
