"""Redis as a primary, a replica and three Sentinels, which fail it over by themselves."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis

from tests.links import Link
from tests.sentinels import NAME, Sentinels, client_options
from tests.servers import wait_for
from tests.torture.single import ForgetfulRedis, Single

__all__ = ["Watched"]

_LONGEST = 4.0
"""Seconds that something is cut off, frozen or down: mostly long enough for a failover, sometimes not."""


class Watched(Single):
    """Servers that are known by links: to the Sentinels, to each other and to clients that ask the Sentinels.

    To cut the link of a primary is a partition: who knows the server itself (``pinned``) goes on writing to it.
    """

    def __init__(self, binary: str) -> None:
        super().__init__(binary)
        self.both = [self.primary, ForgetfulRedis(binary)]
        self.pinned = [server.url for server in self.both]
        self.links: dict[ForgetfulRedis, Link] = {}
        self.sentinels: Sentinels | None = None
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.strikes |= {"failover": self.fail_over, "partition": self.cut_off, "freeze": self.freeze}
        self.strikes["sentinel"] = self.freeze_sentinel

    def start(self) -> None:
        for server in self.both:
            link = self.links[server] = Link(server.port)
            server.settings = {"replica-announce-ip": "127.0.0.1", "replica-announce-port": link.port}
            server.start()
        self.both[1].follow(self.links[self.primary].port)
        self.sentinels = Sentinels(self.primary.binary, self.links[self.primary].port)
        self.sentinels.start()

    def stop(self) -> None:
        if self.sentinels is not None:
            self.sentinels.stop()
        for link in self.links.values():
            link.stop()
        for server in self.both:
            server.kill()

    def cache(self) -> dict[str, Any]:
        assert self.sentinels is not None
        return {"LOCATION": f"redis://{NAME}/0", "OPTIONS": client_options(self.sentinels.ports)}

    def save(self) -> None:
        if not self.later:  # else it may be down, or frozen
            self.find_primary()
            super().save()

    def tick(self) -> None:
        for due in [due for due in self.later if due[0] <= time.monotonic()]:
            self.later.remove(due)
            due[1]()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self.later.append((time.monotonic() + seconds, action))

    def fail_over(self, chance: random.Random) -> bool:
        """A planned one. Refused while another is going on, or while no replica is known to be good."""
        assert self.sentinels is not None
        return not self.later and self.sentinels.can_fail_over() and self.sentinels.ask_to_fail_over()

    def cut_off(self, chance: random.Random) -> bool:
        """A partition: the primary is alone with those who know it directly. Then it is back, and still a primary."""
        if self.later:
            return False
        link = self.links[self.find_primary()]
        link.cut()
        self.after(_LONGEST * chance.random(), link.restore)
        return True

    def freeze(self, chance: random.Random) -> bool:
        """The primary answers nobody for a while; when it goes on, another may have taken over."""
        if self.later:
            return False
        primary = self.find_primary()
        primary.freeze()
        self.after(_LONGEST * chance.random(), primary.thaw)
        return True

    def freeze_sentinel(self, chance: random.Random) -> bool:
        """Two are enough to agree on a failover, which this one hears of late."""
        assert self.sentinels is not None
        sentinel = chance.choice(self.sentinels.processes)
        sentinel.send_signal(signal.SIGSTOP)
        self.after(_LONGEST * chance.random(), lambda: sentinel.send_signal(signal.SIGCONT))
        return True

    def restart(self, chance: random.Random, dump: bytes | None) -> bool:
        """The primary is down for a while, and comes back as one: with a dump, or with nothing."""
        if self.later:
            return False
        primary = self.find_primary()
        primary.kill()
        self.after(chance.random() ** 2 * _LONGEST, lambda: primary.start(dump))
        return True

    def find_primary(self) -> ForgetfulRedis:
        """The server that the Sentinels name; the last one known while they don't."""
        assert self.sentinels is not None
        named = self.sentinels.primary()
        self.primary = next(
            (server for server in self.both if self.links[server].port == named), self.primary
        )
        return self.primary

    def settle(self) -> None:
        """Everything runs, all Sentinels name the same server, and it takes writes; the other one follows it."""
        for _, action in self.later:
            action()
        self.later.clear()
        wait_for(self.is_settled, 60)
        for server in self.both:
            if server is not self.primary:
                server.ask("REPLICAOF", "127.0.0.1", self.links[self.primary].port)

    def is_settled(self) -> bool:
        assert self.sentinels is not None
        if not self.sentinels.agree():
            return False
        with suppress(redis.RedisError):
            role: Any = self.find_primary().ask("ROLE")
            return bool(role[0] == "master")
        return False
