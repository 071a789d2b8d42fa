"""Addresses that tests can route elsewhere, cut and freeze: what a network does to connections.

``python -m tests.links <descriptor of a listening socket> <file>`` forwards each connection to the port that the file
names when it is opened. It is a process of its own, so that a signal can end or stop all of its connections at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.startable import Freezable

__all__ = ["Link"]

_ROOT = Path(__file__).parents[1]


class Link(Freezable):
    """A port of 127.0.0.1 that leads to another one."""

    def __init__(self, target: int) -> None:
        self.port = 0
        """The port to connect to. It stays the same over :meth:`cut` and :meth:`restore`."""

        self._file = tempfile.NamedTemporaryFile("w", prefix="zrank-link-")  # noqa: SIM115 - closed by stop()
        self.route(target)
        self.restore()

    @property
    def url(self) -> str:
        """Database 0 of a Redis behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def route(self, target: int) -> None:
        """Lead new connections to another port. Those that are open stay where they are."""
        self._file.seek(0)
        self._file.write(f"{target:5}")  # over what it held, for it is read at any moment
        self._file.flush()

    def restore(self) -> None:
        """Accept connections, after :meth:`cut`."""
        if self._process is not None:
            return
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", self.port))
            listening.listen(128)  # before the process runs: a connection waits for it
            self.port = int(listening.getsockname()[1])
            descriptor = listening.fileno()
            command = [sys.executable, "-m", "tests.links", str(descriptor), self._file.name]
            self._process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[descriptor])

    def cut(self) -> None:
        """Drop all connections, and refuse new ones."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it for good."""
        self.cut()
        self._file.close()


async def _forward(listening: socket.socket, file: Path) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", int(file.read_text()))
        except OSError:  # nobody listens there now
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    async with await asyncio.start_server(join, sock=listening) as server:
        await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end it then
    asyncio.run(_forward(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])))
