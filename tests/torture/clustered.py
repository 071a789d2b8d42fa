"""Redis as a cluster of three primaries, each with a replica: failovers that lose writes, slots that move."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

import redis
from redis.crc import key_slot

from tests.clusters import Cluster
from tests.servers import RedisServer, wait_for
from tests.torture.single import Single

__all__ = ["Clustered"]


class Clustered(Single):
    """Strikes are at the nodes that indexes lie on."""

    def __init__(self, binary: str) -> None:
        super().__init__(binary)
        self.cluster = Cluster(binary, 3, 1)
        self.indexes: set[str] = set()
        """A key of each index that was found, though its node may be empty now."""

        self.strikes = {
            "failover": self.fail_over,
            "back": self.outlive,
            "slot": self.move,
            "freeze": self.freeze,
            "redis-empty": self.lose_all,
            "kill": self.lose_primary,
        }

    def start(self) -> None:
        self.cluster.start()

    def stop(self) -> None:
        self.cluster.stop()

    def cache(self) -> dict[str, Any]:
        return {"LOCATION": self.cluster.url, "OPTIONS": self.cluster.options}

    def save(self) -> None:
        pass

    def settle(self) -> None:
        self.cluster.settle()

    def slot(self, chance: random.Random) -> int:
        """The slot of an index."""
        for node in self.cluster.primaries():
            self.indexes |= {*node.ask("KEYS", "*:meta")}
        return key_slot(chance.choice(sorted(self.indexes)).encode())

    def pair(self, chance: random.Random) -> tuple[RedisServer, RedisServer] | None:
        """The primary of an index and its replica in step; None where there is none now."""
        primary = self.cluster.owner(self.slot(chance))
        for _, port, _ in primary.ask("ROLE")[2]:
            replica = next(node for node in self.cluster.nodes if node.port == int(port))
            if replica.is_in_step():
                return primary, replica
        return None

    def fail_over(self, chance: random.Random) -> bool:
        """Promote the replica, often after cutting its connection to the primary. The old primary then follows it, and
        loses the writes that the replica had not received."""
        found = self.pair(chance)
        if found is None:
            return False
        primary, replica = found
        if chance.random() < 0.7:
            primary.ask("CLIENT", "KILL", "TYPE", "replica")
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        with suppress(RuntimeError):
            wait_for(primary.is_in_step, 5)
        return True

    def outlive(self, chance: random.Random) -> bool:
        """The primary stands still, is replaced, and goes on."""
        found = self.pair(chance)
        if found is None:
            return False
        primary, replica = found
        primary.freeze()
        try:
            with suppress(RuntimeError):
                wait_for(lambda: replica.ask("ROLE")[0] == "master", 6)
        finally:
            primary.thaw()
        with suppress(RuntimeError, redis.RedisError):
            wait_for(primary.is_in_step, 5)
        return True

    def lose_all(self, chance: random.Random) -> bool:
        """A primary without persistence is killed and comes back, empty, before anybody has missed it: it keeps its
        slots, and its replica becomes as empty. What it does to the other deployments, too."""
        found = self.pair(chance)
        if found is None:
            return False
        primary, replica = found
        nodes = primary.nodes()
        primary.kill()
        primary.start(nodes=nodes)
        with suppress(RuntimeError, redis.RedisError):
            wait_for(replica.is_in_step, 5)
        return True

    def lose_primary(self, chance: random.Random) -> bool:
        """A primary is killed, half the time after its replica has stopped hearing from it. The nodes agree on the
        replica as its successor; the old one comes back as the replica of that one."""
        found = self.pair(chance)
        if found is None:
            return False
        primary, replica = found
        nodes, is_behind = primary.nodes(), chance.random() < 0.5
        if is_behind:
            replica.freeze()
            time.sleep(0.5 * chance.random())
        primary.kill()
        if is_behind:
            replica.thaw()
        with suppress(RuntimeError):
            wait_for(lambda: replica.ask("ROLE")[0] == "master", 6)
        primary.start(nodes=nodes)
        with suppress(RuntimeError, redis.RedisError):
            wait_for(primary.is_in_step, 5)
        return True

    def freeze(self, chance: random.Random) -> bool:
        """A primary answers nobody for a while, too short for a failover."""
        primary = self.cluster.owner(self.slot(chance))
        primary.freeze()
        time.sleep(0.8 * chance.random())
        primary.thaw()
        return True

    def move(self, chance: random.Random) -> bool:
        """A slot moves: half the time in one step, where the server can; else key by key."""
        with suppress(redis.RedisError, RuntimeError):
            slot = self.slot(chance)
            if chance.random() < 0.5 and self.cluster.move_atomically(slot):
                return True
            with self.cluster.moving(slot) as (source, target):
                keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
                chance.shuffle(keys)
                for piece in filter(None, (keys[at::4] for at in range(4))):
                    self.cluster.migrate(source, target, *piece)
                    time.sleep(0.3 * chance.random())
            return True
        return False
