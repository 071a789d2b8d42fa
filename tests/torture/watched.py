"""Redis as a primary, a replica and three Sentinels, which fail it over by themselves."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis

from tests.links import Link
from tests.sentinels import Sentinels
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
        self.asleep: subprocess.Popen[bytes] | None = None
        self.since = 0.0
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
        return {"LOCATION": self.sentinels.url, "OPTIONS": self.sentinels.options}

    def save(self) -> None:
        if not self.is_hit:  # else it may be down, or frozen
            self.find_primary()
            super().save()

    def tick(self) -> None:
        for due in [due for due in self.later if due[0] <= time.monotonic()]:
            self.later.remove(due)
            due[1]()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self.later.append((time.monotonic() + seconds, action))

    @property
    def is_hit(self) -> bool:
        """True while the primary is cut off, frozen or down."""
        return len(self.later) > (self.asleep is not None)

    def fail_over(self, chance: random.Random) -> bool:
        """A planned one. Refused while another is going on, or while no replica is known to be good."""
        assert self.sentinels is not None
        return not self.is_hit and self.sentinels.can_fail_over() and self.sentinels.ask_to_fail_over()

    def cut_off(self, chance: random.Random) -> bool:
        """A partition: the primary is alone with those who know it directly. Then it is back, and still a primary."""
        if self.is_hit:
            return False
        link = self.links[self.find_primary()]
        link.cut()
        self.after(_LONGEST * chance.random(), link.restore)
        return True

    def freeze(self, chance: random.Random) -> bool:
        """The primary answers nobody for a while; when it goes on, another may have taken over."""
        if self.is_hit:
            return False
        primary = self.find_primary()
        primary.freeze()
        self.after(_LONGEST * chance.random(), primary.thaw)
        return True

    def freeze_sentinel(self, chance: random.Random) -> bool:
        """Two are enough to agree on a failover, which this one hears of late."""
        assert self.sentinels is not None
        if self.asleep is not None:
            return False
        self.asleep = chance.choice(self.sentinels.processes)
        self.asleep.send_signal(signal.SIGSTOP)
        self.after(_LONGEST * chance.random(), self.wake_sentinel)
        return True

    def wake_sentinel(self) -> None:
        assert self.asleep is not None
        self.asleep.send_signal(signal.SIGCONT)
        self.asleep = None

    def restart(self, chance: random.Random, dump: bytes | None) -> bool:
        """The primary is down for a while, and comes back as one: with a dump, or with nothing."""
        if self.is_hit:
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
        """Everything runs, all Sentinels name the same server, and none of them is about to name another."""
        assert self.sentinels is not None
        for _, action in self.later:
            action()
        self.later.clear()
        self.since = time.monotonic()
        wait_for(self.is_settled, 90)

    def is_settled(self) -> bool:
        """Return true if it has been so for a second: a Sentinel that was frozen may yet have something to say."""
        assert self.sentinels is not None
        role: Any = [None]
        with suppress(redis.RedisError):
            role = self.find_primary().ask("ROLE")
        if role[0] != "master" or not self.sentinels.are_content():
            self.since = time.monotonic()
        return time.monotonic() > self.since + 1
