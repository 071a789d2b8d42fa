"""The processor, by the clock of a process: what the app costs, and for how long other processes had its core.

A clock on the wall goes on while a process waits for a core, and while the host of a virtual machine takes that away.
The time that the scheduler reckons to a thread (``/proc/…/schedstat``) doesn't.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

__all__ = ["alone_on", "calls_timed", "queued", "used"]

PRIORITY = 50
"""Of real time: above that of other programs' measurements, which begin at 1."""


def used(pid: int) -> float:
    """Return the seconds for which the first thread of a process has used the processor: a server's other threads free
    memory, and hold up nobody."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def queued(pid: int) -> float:
    """Return the seconds for which a process was ready to run, and others of this machine had its core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def alone_on(core: int | None, pid: int = 0) -> None:
    """Let a process run on one core only, before all others (as root). Niceness wouldn't do: where the kernel groups
    processes by session (``sched_autogroup_enabled``), it counts within a session."""
    if core is not None:
        os.sched_setaffinity(pid, [core])
    with suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(PRIORITY))


@contextmanager
def calls_timed(pid: int) -> Iterator[list[float]]:
    """Seconds of its processor that each call from this process takes of a server, with what it does for others
    meanwhile."""
    from django_zrank.redis import executor

    taken: list[float] = []

    send_request = executor.send_request

    def timed(*args: Any) -> Any:
        before = used(pid)
        try:
            return send_request(*args)
        finally:
            taken.append(used(pid) - before)

    with mock.patch.object(executor, "send_request", timed):
        yield taken
