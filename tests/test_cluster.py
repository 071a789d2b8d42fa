"""A cluster of real servers behind django-redis: the connection, and slots that move while it is used."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import pytest
from django.core.cache import caches
from django.core.checks import run_checks
from django.db import connection
from django_redis import get_redis_connection
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, ResponseError, SlotNotCoveredError

from django_zrank import NotRanked
from django_zrank.cluster import client as clients
from django_zrank.cluster.connections import ConnectionFactory
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import Mark
from django_zrank.queries.request import Call
from django_zrank.redis import reader_of
from django_zrank.store import Store
from django_zrank.sync.in_step import breaker
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.testing import reset, settings_for
from tests.clusters import Cluster
from tests.servers import RedisServer, free_port
from tests.sync.conftest import use_redis
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Competitor, Guild
from tests.testapp.zrank import CompetitorRank, PlayerAscending
from tests.without_parts.parts import PARTS
from tests.writes import begin_write

INDEX = CompetitorRank.instance()
FACTORY = "django_zrank.cluster.ConnectionFactory"


def use(settings: Any, cluster: Cluster, **options: Any) -> None:
    """Let the app use a cluster, emptied."""
    for name, value in settings_for(cluster).items():
        setattr(settings, name, value)
    cache = settings.CACHES["zrank"]
    cache["OPTIONS"].update(options)
    get_redis_connection("zrank").flushdb()
    reset()


def owner(cluster: Cluster, store: Store) -> RedisServer:
    """The node that an index lies on."""
    return cluster.owner(key_slot(store.keys.meta.encode()))


LOCATIONS = [
    ("redis://node-1:6379/3", "must name no database, not 'redis://node-1:6379/3'"),
    ("redis://node-1:6379,redis://node-2:6379", "must be the URL of one node"),
    ("unix:///run/redis.sock", "must be the URL of one node"),
    ("redis://:s3cret@node-1/3,redis://u:s3cret@node-2", "not 'redis://:…@node-1/3,redis://u:…@node-2'"),
]


@pytest.mark.parametrize(("location", "said"), LOCATIONS)
def test_a_location_that_is_not_one_node(settings: Any, location: str, said: str) -> None:
    """No message shows a password."""
    options = {"CONNECTION_FACTORY": FACTORY, "SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1}
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}
    settings.CACHES = {**settings.CACHES, "zrank": cache}
    (message,) = [one for one in run_checks(tags=["zrank"]) if one.id == "zrank.E007"]
    assert said in message.msg
    assert message.hint
    assert "s3cret" not in f"{message.msg} {message.hint}"


class TestConnection:
    def test_threads_share_one_client(self, three: Cluster, settings: Any) -> None:
        use(settings, three)
        with ThreadPoolExecutor(4) as threads:
            clients = {*threads.map(lambda _: get_redis_connection("zrank"), range(8))}
        assert len(clients) == 1
        assert isinstance(clients.pop(), RedisCluster)

    def test_a_forked_process_makes_its_own(self, three: Cluster, settings: Any) -> None:
        """Though another thread of its parent's holds the locks."""
        use(settings, three)
        client = get_redis_connection("zrank")
        with ConnectionFactory._lock, client.nodes_manager._lock:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    own = get_redis_connection("zrank")
                    status = int(own is client or not own.set("forked", "yes"))
                finally:
                    os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert client.get("forked") == b"yes"

    @pytest.mark.slow
    def test_the_first_node_may_be_away(self, redis_binary: str, settings: Any) -> None:
        with Cluster(redis_binary) as cluster:
            cluster.nodes[0].kill()
            options = settings_for(cluster)["CACHES"]["zrank"]["OPTIONS"]
            client = ConnectionFactory(options).connect(cluster.url)
            assert len(client.get_primaries()) == 3

    def test_coroutines_are_answered(self, three: Cluster, settings: Any) -> None:
        use(settings, three)

        async def ask() -> list[Any]:
            return await asyncio.gather(PlayerAscending.ranking.acount(), CompetitorRank.ranking.atop(3))

        assert asyncio.run(ask()) == [0, []]

    def test_a_cluster_that_is_down_is_left_to_threads(self, settings: Any) -> None:
        """Connecting to it blocks, too."""
        use_redis(settings, f"redis://127.0.0.1:{free_port()}", CONNECTION_FACTORY=FACTORY)
        made_in: set[int] = set()

        def make(*args: Any) -> Any:
            made_in.add(threading.get_ident())
            return real(*args)

        async def ask() -> list[Any]:
            return await asyncio.gather(PlayerAscending.ranking.acount(), return_exceptions=True)

        real = ConnectionFactory._make
        with mock.patch.object(ConnectionFactory, "_make", make):
            assert [type(one) for one in asyncio.run(ask())] == [IndexUnavailable]
        assert made_in
        assert threading.get_ident() not in made_in  # where the loop runs

    @pytest.mark.parametrize("error", [RedisClusterException, SlotNotCoveredError])
    def test_errors_that_are_none_of_redis_are_ours(
        self, three: Cluster, settings: Any, error: type[Exception]
    ) -> None:
        use(settings, three)
        with (
            mock.patch("redis.cluster.RedisCluster.execute_command", side_effect=error("gone")),
            pytest.raises(IndexUnavailable, match="gone"),
        ):
            PlayerAscending.ranking.rank(1)

    def test_the_server_of_an_index_is_the_node_that_it_lies_on(self, three: Cluster, settings: Any) -> None:
        use(settings, three)
        stores = [Store(f"name-{number}") for number in range(12)]
        ports = [owner(three, store).port for store in stores]
        assert len(set(ports)) == 3
        assert [store.server_info()["tcp_port"] for store in stores] == ports

    def test_closing_a_cache_closes_its_connections(self, three: Cluster, settings: Any) -> None:
        use(settings, three)
        client = get_redis_connection("zrank")
        pools = [client.get_redis_connection(node).connection_pool for node in client.get_primaries()]
        for node in client.get_primaries():
            client.ping(target_nodes=node)
        assert any(one._sock for pool in pools for one in pool._available_connections)
        caches["zrank"].client.do_close_clients()
        assert not any(one._sock for pool in pools for one in pool._available_connections)

    @pytest.mark.parametrize(
        ("ask", "command"),
        [
            (lambda store: begin_write(store), "evalsha"),
            (lambda store: store.read([Call(name, (store.keys.meta,)) for name in ("HLEN", "TYPE")]), "hlen"),
        ],
        ids=["one call", "a pipeline"],
    )
    def test_a_node_that_hangs_is_asked_once(
        self, three: Cluster, settings: Any, ask: Callable[[Store], Any], command: str
    ) -> None:
        """redis-py would send it eleven times, and wait each time."""
        use(settings, three, SOCKET_TIMEOUT=0.3)
        store = Store(INDEX.name, INDEX.layout)
        node = owner(three, store)
        ask(store)
        node.ask("CONFIG", "RESETSTAT")
        node.freeze()
        try:
            with pytest.raises(IndexUnavailable):
                ask(store)
        finally:
            node.thaw()
        three.settle()
        assert node.ask("INFO", "commandstats")[f"cmdstat_{command}"]["calls"] == 1

    @pytest.mark.slow
    def test_passwords(self, redis_binary: str, settings: Any) -> None:
        with Cluster(redis_binary, requirepass="secret", masterauth="secret") as cluster:
            use(settings, cluster)
            assert PlayerAscending.ranking.count() == 0
            wrong = {**settings.CACHES["zrank"]["OPTIONS"], "PASSWORD": "guessed"}
            settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "OPTIONS": wrong}}
            with pytest.raises(IndexUnavailable):
                PlayerAscending.ranking.count()

    @pytest.mark.slow
    def test_certificates(self, redis_binary: str, settings: Any, tmp_path: Path) -> None:
        if "libssl" not in subprocess.run(["ldd", redis_binary], capture_output=True, text=True).stdout:
            pytest.skip("this server was built without TLS")
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=node -addext subjectAltName=IP:127.0.0.1"
        )
        files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
        subprocess.run([*command.split(), *files], check=True, capture_output=True)
        with Cluster(redis_binary, certificate=tmp_path) as cluster:
            use(settings, cluster)
            assert PlayerAscending.ranking.count() == 0
            client = get_redis_connection("zrank")
            assert {node.port for node in client.get_primaries()} == set(cluster.doors.values())


@pytest.fixture
def moved(three: Cluster, settings: Any) -> Iterator[Mover]:
    """An index with facets and counts of values, whose slot the test moves."""
    use(settings, three)
    for name in ("a", "b"):
        Guild.objects.create(slug=name)
    guilds = list(Guild.objects.all())
    Competitor.objects.bulk_create(
        Competitor(points=pk % 7, region="rst"[pk % 3], platform="xy"[pk % 2], guild=guilds[pk % 2])
        for pk in range(40)
    )
    Mark.objects.all().delete()
    rebuild(INDEX)
    yield Mover(three, random.Random(5))
    breaker.forget()


class Mover:
    """Writes to and reads from the index while its slot moves, and what was wrong meanwhile."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster, self.dice = cluster, dice
        self.slot = key_slot(Store(INDEX.name).keys.meta.encode())
        self.wrong: list[str] = []
        self.refused = 0

    def go(self, last: str = "") -> None:
        """Move the slot in pieces, with writes and reads before and after each. The keys called ``last`` come when all
        others have arrived."""
        with self.cluster.moving(self.slot) as (source, target):
            names = source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)
            self.dice.shuffle(names)
            held = [name for name in names if last and name.endswith(last)]
            names = [name for name in names if name not in held]
            size = len(names) // 4 + 1
            for piece in filter(None, [*(names[at : at + size] for at in range(0, len(names), size)), held]):
                self.use()
                self.cluster.migrate(source, target, *piece)
            self.use()

    def use(self) -> None:
        """A write, and reads; each may be refused."""
        competitor = self.dice.choice(list(Competitor.objects.all()))
        competitor.points, competitor.region = self.dice.randrange(9), self.dice.choice("rst")
        Competitor.objects.filter(pk=competitor.pk).update(points=competitor.points, region=competitor.region)
        self.ask("push", lambda: push(INDEX, [competitor.pk]))
        self.ask("count", CompetitorRank.ranking.count, 40)
        if PARTS["combined"].is_there:
            # Another one each time, so that it is made.
            regions = [*"rst", str(self.dice.random())]
            self.ask("filters", CompetitorRank.ranking.filter(region__in=regions).count, 40)
        self.ask("rank", lambda: CompetitorRank.ranking.rank(competitor) in range(1, 41), True)
        self.ask("recommend", lambda: len(CompetitorRank.ranking.recommend(competitor, 5, band=9)), 5)

    def ask(self, name: str, question: Callable[[], Any], expected: object = None) -> None:
        try:
            answer = question()
        except IndexUnavailable as error:
            self.refused += 1
            if "non local key" in str(error):  # a script was cut off in its middle
                self.wrong.append(f"{name}: {error}")
        except (NotRanked, ResponseError) as error:
            self.wrong.append(f"{name}: {error}")
        else:
            if expected is not None and answer != expected:
                self.wrong.append(f"{name}: {answer}")


def believe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads take the server for healthy without a look."""
    reader = reader_of(INDEX)
    monkeypatch.setattr(reader, "healthy_server", replace(reader.healthy_server, is_due=lambda loop: False))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
class TestSlotsThatMove:
    @pytest.mark.parametrize("is_due", [True, False], ids=["", "believed"])
    def test_key_by_key(self, moved: Mover, is_due: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """A write is whole, or isn't there; who is ranked, stays so."""
        if not is_due:
            believe(monkeypatch)
        moved.go(last="memberships")
        assert moved.wrong == []
        assert moved.refused  # for as long as the keys lie on two nodes
        sync(INDEX)
        assert_mirrors(CompetitorRank)
        moved.go()  # and back
        assert moved.wrong == []
        sync(INDEX)
        assert_mirrors(CompetitorRank)
        assert verify(INDEX).ok

    def test_in_one_step(self, moved: Mover) -> None:
        """As Valkey 9 moves slots, while others write and read."""

        def work() -> None:
            while not done.is_set():
                moved.use()
            connection.close()

        done = Event()
        with ThreadPoolExecutor(1) as threads:
            working = threads.submit(work)
            try:
                for _ in range(4):
                    if not moved.cluster.move_atomically(moved.slot):
                        pytest.skip("this server moves slots key by key only")
                    sync(INDEX)
            finally:
                done.set()
            working.result()
        sync(INDEX)
        assert moved.wrong == []
        assert_mirrors(CompetitorRank)

    def test_without_the_guard_key(self, moved: Mover, monkeypatch: pytest.MonkeyPatch) -> None:
        """Scripts touch what has moved, or has not arrived: within the second for which a server is believed."""
        monkeypatch.setattr(clients, "_guarded", lambda call: call)
        believe(monkeypatch)
        try:
            moved.go(last="memberships")
        except ResponseError as error:  # keys were written on both sides
            moved.wrong.append(str(error))
        assert moved.wrong
