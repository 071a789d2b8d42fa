"""Redis as a primary and a replica, failed over by hand: fast, back and forth, and with writes on both sides."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.links import Link
from tests.servers import wait_for
from tests.torture.single import ForgetfulRedis, Single

__all__ = ["Pair"]


class Pair(Single):
    """Two servers behind one address, which leads to the primary.

    Each is heard by the other through a link of its own, that can be cut: then the replica falls behind.
    """

    def __init__(self, binary: str) -> None:
        super().__init__(binary)
        self.replica = ForgetfulRedis(binary)
        self.both = [self.primary, self.replica]
        self.pinned = [server.url for server in self.both]
        self.wires: dict[ForgetfulRedis, Link] = {}
        self.front: Link | None = None
        self.is_split = False
        """True while both are primaries."""

        self.strikes |= {
            "failover": self.fail_over,
            "back": self.there_and_back,
            "split": self.split,
            "freeze": self.freeze,
        }

    def start(self) -> None:
        for server in self.both:
            server.start()
            self.wires[server] = Link(server.port)
        self.front = Link(self.primary.port)
        self.replica.follow(self.wires[self.primary].port)

    def stop(self) -> None:
        for link in filter(None, [self.front, *self.wires.values()]):
            link.stop()
        for server in self.both:
            server.kill()

    def cache(self) -> dict[str, Any]:
        assert self.front is not None
        return {"LOCATION": self.front.url}

    def fail_over(self, chance: random.Random) -> bool:
        """To the replica, which may be behind. The old primary follows it; connections to that one may stay open."""
        if not self.heal(chance):
            return False
        with self.lag(chance):
            self.promote()
        self.demote(self.replica)
        self.lead(keep=chance.random() < 0.5)
        return True

    def there_and_back(self, chance: random.Random) -> bool:
        """A → B → A with a full resync in between; half the time, nobody gets to look meanwhile."""
        if not self.heal(chance):
            return False
        assert self.front is not None
        unseen = chance.random() < 0.5
        if unseen:
            self.front.freeze()
        try:
            with self.lag(chance):
                self.promote()
            self.demote(self.replica)
            if not unseen:
                self.lead(keep=chance.random() < 0.5)
            done = self.is_in_step()
            if done:
                self.promote()
                self.demote(self.replica)
        finally:
            if unseen:
                self.front.thaw()
        self.lead(keep=chance.random() < 0.5)
        return done

    def split(self, chance: random.Random) -> bool:
        """The replica is promoted, and the primary knows nothing of it, until the next strike: see :meth:`heal`."""
        if not self.heal(chance):
            return False
        with self.lag(chance):
            self.promote()
        self.is_split = True
        self.lead(keep=chance.random() < 0.5)
        return True

    def freeze(self, chance: random.Random) -> bool:
        """The primary answers nobody for a while."""
        self.primary.freeze()
        time.sleep(1.5 * chance.random())
        self.primary.thaw()
        return True

    def restart(self, chance: random.Random, dump: bytes | None) -> bool:
        return self.heal(chance) and super().restart(chance, dump)

    def settle(self) -> None:
        """One primary, with the address that leads to it. Any of the two, where both are: the address tells."""
        if self.is_split:
            self.is_split = False
            self.demote(self.replica)
        self.lead(keep=False)

    def heal(self, chance: random.Random) -> bool:
        """End a partition: either of the two is thrown away. False where the replica does not get in step."""
        if self.is_split:
            self.is_split = False
            if chance.random() < 0.5:
                self.primary, self.replica = self.replica, self.primary
            self.demote(self.replica)
            self.lead(keep=chance.random() < 0.5)
        return self.is_in_step()

    def is_in_step(self) -> bool:
        with suppress(RuntimeError):
            wait_for(self.replica.is_in_step, 3)
            return True
        return False

    def promote(self) -> None:
        """Make the replica the primary, whatever the other one is."""
        self.replica.promote()
        self.primary, self.replica = self.replica, self.primary

    def demote(self, server: ForgetfulRedis) -> None:
        """Make it the replica of the primary."""
        server.ask("REPLICAOF", "127.0.0.1", self.wires[self.primary].port)

    def lead(self, *, keep: bool) -> None:
        """Let the address lead to the primary; ``keep`` the connections to the other one open."""
        assert self.front is not None
        if not keep:
            self.front.cut()
        self.front.route(self.primary.port)
        self.front.restore()

    @contextmanager
    def lag(self, chance: random.Random) -> Iterator[None]:
        """The replica hears nothing inside, and has not for a while; or it hears all."""
        wire = self.wires[self.primary]
        if chance.random() < 0.7:
            wire.cut()
            time.sleep(0.7 * chance.random())
        yield
        wire.restore()
