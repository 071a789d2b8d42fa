"""A cluster of servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis

from tests.servers import RedisServer, free_port, wait_for
from tests.startable import Startable

__all__ = ["Cluster"]

_SLOTS: Final = 16384


class Cluster(Startable):
    """``primaries`` servers of ``binary`` that share the slots, each with so many replicas.

    It can be used as the server of the fixture ``zrank``.
    """

    def __init__(
        self,
        binary: str | Path,
        primaries: int = 3,
        replicas: int = 0,
        *,
        certificate: Path | None = None,
        **settings: object,
    ) -> None:
        self.count = primaries
        self.nodes = [RedisServer(binary) for _ in range(primaries * (1 + replicas))]
        """First the primaries, then the first replica of each, and so on."""

        self.buses = {node.port: free_port() for node in self.nodes}
        """By the port of each node: that of its bus."""

        self.certificate = certificate
        """A folder with ``cert.pem`` and ``key.pem``: clients have to encrypt."""

        self.doors = {node.port: free_port() if certificate else node.port for node in self.nodes}
        """By the port of each node: the one that clients and other nodes use."""

        self.password = str(settings.get("requirepass", ""))
        for node in self.nodes:
            node.password = self.password
            node.settings = {
                "cluster-enabled": "yes",
                "cluster-node-timeout": 1000,
                "cluster-require-full-coverage": "no",
                # By default 10,000 above its own port, where another server may listen.
                "cluster-port": self.buses[node.port],
                **settings,
            }
            if certificate:
                node.settings |= {
                    "tls-port": self.doors[node.port],
                    "tls-cluster": "yes",
                    "tls-auth-clients": "no",
                    "tls-cert-file": certificate / "cert.pem",
                    "tls-key-file": certificate / "key.pem",
                    "tls-ca-cert-file": certificate / "cert.pem",
                }

    @property
    def url(self) -> str:
        scheme = "rediss" if self.certificate else "redis"
        return f"{scheme}://127.0.0.1:{self.doors[self.nodes[0].port]}"

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "CONNECTION_FACTORY": "django_zrank.cluster.ConnectionFactory",
            "NODES": [("127.0.0.1", self.doors[node.port]) for node in self.nodes[1:]],
        }
        if self.password:
            options["PASSWORD"] = self.password
        if self.certificate:
            options["CONNECTION_POOL_KWARGS"] = {"ssl_ca_certs": str(self.certificate / "cert.pem")}
        return options

    def start(self) -> None:
        """Start all, and wait until every node knows every slot's owner and its replicas."""
        for node in self.nodes:
            node.start()
        ids = [node.ask("CLUSTER", "MYID") for node in self.nodes]
        for at, node in enumerate(self.nodes[: self.count]):
            first, last = (_SLOTS * end // self.count for end in (at, at + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", self.doors[node.port], self.buses[node.port])
        wait_for(lambda: all(self.knows(node, *ids) for node in self.nodes), 30)
        for at, node in enumerate(self.nodes[self.count :]):
            node.ask("CLUSTER", "REPLICATE", ids[at % self.count])
        self.settle()

    def settle(self) -> None:
        """Wait until all nodes that run agree, and all replicas are in step."""
        wait_for(lambda: all(self.is_settled(node) for node in self.nodes if node.is_running), 30)

    def knows(self, node: RedisServer, *ids: str) -> bool:
        """Return true if a node has met all others."""
        told = node.ask("CLUSTER", "NODES")
        return all(name in told for name in ids) and "handshake" not in told

    def is_settled(self, node: RedisServer) -> bool:
        """Return true if a node knows an owner, and a replica where there are any, of each slot; and is in step."""
        slots = node.ask("CLUSTER", "SLOTS")
        return (
            "cluster_state:ok" in node.ask("CLUSTER", "INFO")
            and sum(last - first + 1 for first, last, *_ in slots) == _SLOTS
            and all(len(part) > 3 for part in slots) == (len(self.nodes) > self.count)
            and (node.ask("ROLE")[0] == "master" or node.is_in_step())
        )

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()

    # Slots

    def primaries(self) -> list[RedisServer]:
        """Those that take writes."""
        return [node for node in self.nodes if node.is_running and node.ask("ROLE")[0] == "master"]

    def owner(self, slot: int) -> RedisServer:
        """The primary that reports a slot as its own. While it changes hands, each may have been asked too early or too
        late: then they are asked again."""
        owners: list[RedisServer] = []
        wait_for(lambda: owners.extend(self._owners(slot)) or bool(owners), 10)
        return owners[0]

    def _owners(self, slot: int) -> Iterator[RedisServer]:
        for node in self.primaries():
            for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last and primary[1] == node.port:
                    yield node

    def other(self, node: RedisServer) -> RedisServer:
        """Another primary."""
        return next(one for one in self.primaries() if one is not node)

    @contextmanager
    def moving(self, slot: int) -> Iterator[tuple[RedisServer, RedisServer]]:
        """A slot on its way to another primary, key by key: none has moved yet. It arrives in the end."""
        source = self.owner(slot)
        target = self.other(source)
        ids = [node.ask("CLUSTER", "MYID") for node in (source, target)]
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        yield source, target
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
            self.migrate(source, target, *keys)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        wait_for(lambda: self.owner(slot) is target, 10)

    def migrate(self, source: RedisServer, target: RedisServer, *keys: str) -> None:
        """Move keys of a slot that moves."""
        auth = ("AUTH", self.password) if self.password else ()
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, *auth, "KEYS", *keys)

    def move_atomically(self, slot: int) -> bool:
        """Move a slot to another primary in one step, as Valkey 9 does. False: this server doesn't."""
        source = self.owner(slot)
        target = self.other(source)
        name = target.ask("CLUSTER", "MYID")
        try:
            source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
        except redis.ResponseError as error:
            if "unknown" in str(error).lower():
                return False
            raise
        wait_for(lambda: self.owner(slot) is target, 30)
        return True
