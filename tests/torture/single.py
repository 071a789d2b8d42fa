"""Redis as one server, which is killed and comes back with what it held earlier."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

import redis

from tests.servers import RedisServer
from tests.torture.strike import Strike

__all__ = ["ForgetfulRedis", "Single"]


class ForgetfulRedis(RedisServer):
    """A server that may be started with what it held when :meth:`save` was last called."""

    dump: bytes | None = None

    def save(self) -> None:
        """Keep what it holds now for a later start."""
        assert self._folder is not None
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            client.save()
        self.dump = (self._folder / "dump.rdb").read_bytes()


class Single:
    """One server, and what the other deployments have in common with it."""

    def __init__(self, binary: str) -> None:
        self.primary = ForgetfulRedis(binary)
        self.strikes: dict[str, Strike] = {
            "redis-empty": self.lose_all,
            "redis-dump": self.lose_some,
            "memory": self.run_out,
        }
        """The strikes against it, by name."""

        self.pinned: list[str] = []
        """Addresses of servers for processes that don't follow a failover: those on the other side of a partition."""

    def start(self) -> None:
        self.primary.start()

    def stop(self) -> None:
        self.primary.kill()

    def cache(self) -> dict[str, Any]:
        """The entries of ``CACHES["zrank"]``: LOCATION, and OPTIONS where needed."""
        return {"LOCATION": self.primary.url}

    def save(self) -> None:
        """Keep what it holds for a later start, unless it is busy with something else."""
        with suppress(redis.RedisError):
            self.primary.save()

    def tick(self) -> None:
        """Called often, for what is to be done later."""

    def settle(self) -> None:
        """Wait until it can be read and written, by everybody."""

    def lose_all(self, chance: random.Random) -> bool:
        return self.restart(chance, None)

    def lose_some(self, chance: random.Random) -> bool:
        return self.restart(chance, self.primary.dump)

    def run_out(self, chance: random.Random) -> bool:
        """Let it refuse writes for a while, as a server without memory does."""
        try:
            self.primary.ask("CONFIG", "SET", "maxmemory", 1)
            time.sleep(chance.random())
            self.primary.ask("CONFIG", "SET", "maxmemory", 0)
        except redis.RedisError:
            return False
        return True

    def restart(self, chance: random.Random, dump: bytes | None) -> bool:
        self.primary.kill()
        time.sleep(chance.random() * 0.3)
        self.primary.start(dump)
        return True
