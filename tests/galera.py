"""Two nodes of a Galera cluster, each of which takes writes."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from tests.torture.databases import MariaDB

__all__ = ["PROVIDER", "Node"]

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
"""Debian's ``galera-4``. The second node copies the first one by rsync."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node(MariaDB):
    """A node, which joins another one or begins a cluster."""

    def __init__(self, folder: Path, peer: Node | None = None) -> None:
        super().__init__(folder)
        self.private, self.peer = True, peer
        self.port, self.transfers, self.copies, self.clients = (_free_port() for _ in range(4))

    def up(self) -> None:
        peer = f"127.0.0.1:{self.peer.port}" if self.peer else ""
        provider = f"gmcast.listen_addr=tcp://127.0.0.1:{self.port};ist.recv_addr=127.0.0.1:{self.transfers}"
        options = (
            f"--no-defaults --datadir={self.folder}/server --socket={self.socket} --bind-address=127.0.0.1"
            f" --port={self.clients} --skip-log-bin --innodb-flush-log-at-trx-commit=0 --log-error={self.folder}/log"
            " --character-set-server=utf8mb4 --binlog-format=ROW --innodb-autoinc-lock-mode=2 --wsrep-on=ON"
            f" --wsrep-provider={PROVIDER} --wsrep-cluster-address=gcomm://{peer} --wsrep-sst-method=rsync"
            f" --wsrep-node-address=127.0.0.1:{self.port} --wsrep-sst-receive-address=127.0.0.1:{self.copies}"
            f" --wsrep-provider-options={provider};gcache.size=16M"
        )
        identity = self.identity()
        # The scripts that copy a node are beside the server.
        identity["env"] = {**identity["env"], "PATH": f"{os.environ['PATH']}:/usr/sbin:/usr/bin"}
        self.process = subprocess.Popen(
            ["/usr/sbin/mariadbd", *options.split()], stderr=subprocess.DEVNULL, **identity
        )
        deadline = time.monotonic() + 60
        while "ON" not in self.ask("SHOW STATUS LIKE 'wsrep_ready'"):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"The node is not ready: {self.folder}/log")
            time.sleep(0.1)

    def ask(self, sql: str) -> str:
        """The client's answer; empty if there is none."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "-e", sql]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
