"""Three Sentinels that watch over a primary and its replicas."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import redis

from tests.servers import ONCE, free_port, wait_for
from tests.startable import Startable

__all__ = ["Sentinels"]


class Sentinels(Startable):
    """Processes of ``binary --sentinel``: two of them agree on a failover."""

    def __init__(self, binary: str | Path, primary: int, *, down_after: int = 500) -> None:
        self.binary = str(binary)
        self.folder = Path(tempfile.mkdtemp(prefix="zrank-sentinels-"))
        self.ports = [free_port() for _ in range(3)]
        self.name = f"main-{self.ports[0]}"
        """Their name of the primary: another one each time, since django-redis keeps a pool for each URL, with the
        Sentinels that it was made with."""

        self.processes: list[subprocess.Popen[bytes]] = []
        for port in self.ports:
            folder = self.folder / str(port)
            folder.mkdir()
            (folder / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/log\n"
                f"sentinel monitor {self.name} 127.0.0.1 {primary} 2\n"
                f"sentinel down-after-milliseconds {self.name} {down_after}\n"
                f"sentinel failover-timeout {self.name} 2000\n"
            )

    def start(self) -> None:
        """Start them, and wait until each knows the others and a replica: earlier no failover can happen."""
        for port in self.ports:
            command = [self.binary, str(self.folder / str(port) / "sentinel.conf"), "--sentinel"]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        wait_for(lambda: all(self._knows_everybody(port) for port in self.ports), 30)

    def _knows_everybody(self, port: int) -> bool:
        state = self._ask(port, "SENTINEL", "MASTER", self.name)
        return bool(state) and int(state["num-other-sentinels"]) == 2 and int(state["num-slaves"]) >= 1

    def _ask(self, port: int, *command: str) -> Any:
        """The reply of a Sentinel; None if there is none."""
        try:
            with redis.Redis(port=port, socket_timeout=0.5, decode_responses=True, retry=ONCE) as client:
                return client.execute_command(*command)
        except redis.RedisError:
            return None

    def primary(self) -> int | None:
        """The port of the primary, as most of those that answer say."""
        said = [self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name) for port in self.ports]
        ports = [int(address[1]) for address in said if address]
        return max(set(ports), key=ports.count) if ports else None

    def fail_over(self) -> None:
        """A planned failover: to a replica that has what the primary has, as far as it has got it."""
        before = self.primary()
        wait_for(self.ask_to_fail_over, 10)
        wait_for(lambda: self.agree() and self.primary() != before, 30)

    def ask_to_fail_over(self) -> bool:
        """Begin a planned failover. Returns false where it is refused."""
        return bool(self._ask(self.ports[0], "SENTINEL", "FAILOVER", self.name))

    def agree(self) -> bool:
        """Return true if all of them name the same primary."""
        said = [self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name) for port in self.ports]
        return all(said) and len({int(address[1]) for address in said}) == 1

    def are_content(self) -> bool:
        """Return true if they agree, and none of them holds the primary for down or is failing it over."""
        states = [self._ask(port, "SENTINEL", "MASTER", self.name) for port in self.ports]
        return self.agree() and all(state and state["flags"] == "master" for state in states)

    def can_fail_over(self) -> bool:
        """Return true if the last failover is over, and a replica hears from the primary."""
        state = self._ask(self.ports[0], "SENTINEL", "MASTER", self.name)
        replicas = self._ask(self.ports[0], "SENTINEL", "REPLICAS", self.name)
        return (
            bool(state)
            and state["flags"] == "master"
            and any(replica["master-link-status"] == "ok" for replica in replicas or [])
        )

    @property
    def url(self) -> str:
        """``LOCATION`` of a cache whose server they name."""
        return f"redis://{self.name}/0"

    @property
    def options(self) -> dict[str, Any]:
        """Its ``OPTIONS``."""
        return {
            "CLIENT_CLASS": "django_redis.client.SentinelClient",
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "SENTINELS": [("127.0.0.1", port) for port in self.ports],
            "SENTINEL_KWARGS": {"socket_timeout": 0.5, "socket_connect_timeout": 0.5},
        }

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
