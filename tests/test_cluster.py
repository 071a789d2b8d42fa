"""A cluster of real servers behind django-redis: the connection, and slots that move while it is used."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django_redis import get_redis_connection
from redis.cluster import RedisCluster
from redis.crc import key_slot

from django_zrank import cluster as connections
from django_zrank.exceptions import IndexUnavailable
from django_zrank.store import Store
from django_zrank.sync.breaker import breaker
from django_zrank.testing import reset, settings_for
from tests.clusters import Cluster
from tests.servers import RedisServer
from tests.testapp.zrank import CompetitorRank, PlayerAscending

INDEX = CompetitorRank.instance()


@pytest.fixture(scope="session")
def three(redis_binary: str) -> Iterator[Cluster]:
    """Three primaries."""
    with Cluster(redis_binary) as cluster:
        yield cluster


def use(settings: Any, cluster: Cluster, **options: Any) -> None:
    """Let the app use a cluster, emptied."""
    for name, value in settings_for(cluster).items():
        setattr(settings, name, value)
    cache = settings.CACHES["zrank"]
    cache["OPTIONS"].update(options)
    get_redis_connection("zrank").flushdb()
    breaker.reset()
    reset()


def owner(cluster: Cluster, store: Store) -> RedisServer:
    """The node that an index lies on."""
    return cluster.owner(key_slot(store.keys.meta.encode()))


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
        with connections.ConnectionFactory._lock, client.nodes_manager._lock:
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

    def test_the_first_node_may_be_away(self, redis_binary: str, settings: Any) -> None:
        with Cluster(redis_binary) as cluster:
            cluster.nodes[0].kill()
            options = settings_for(cluster)["CACHES"]["zrank"]["OPTIONS"]
            client = connections.ConnectionFactory(options).connect(cluster.url)
            assert len(client.get_primaries()) == 3

    def test_closing_a_cache_closes_its_connections(self, three: Cluster, settings: Any) -> None:
        use(settings, three)
        client = get_redis_connection("zrank")
        pools = [client.get_redis_connection(node).connection_pool for node in client.get_primaries()]
        for node in client.get_primaries():
            client.ping(target_nodes=node)
        assert all(pool._available_connections[0]._sock for pool in pools)
        caches["zrank"].client.do_close_clients()
        assert not any(one._sock for pool in pools for one in pool._available_connections)

    @pytest.mark.parametrize(
        ("ask", "command"),
        [
            (lambda store: store.begin_write(), "evalsha"),
            (lambda store: list(store.scan_registry("x")), "zscan"),
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

    def test_passwords(self, redis_binary: str, settings: Any) -> None:
        with Cluster(redis_binary, requirepass="secret", masterauth="secret") as cluster:
            use(settings, cluster)
            assert PlayerAscending.ranking.count() == 0
            wrong = {**settings.CACHES["zrank"]["OPTIONS"], "PASSWORD": "guessed"}
            settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "OPTIONS": wrong}}
            with pytest.raises(IndexUnavailable):
                PlayerAscending.ranking.count()

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
