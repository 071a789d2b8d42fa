"""The victims: processes forked from the driver, which has imported everything and is connected to nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Process"]

_PR_SET_PDEATHSIG = 1
_ENDINGS = {signal.SIGINT, signal.SIGTERM}


class Process:
    """A running ``task``. What it prints goes to ``log``; if it raises, its status is 1."""

    def __init__(self, task: Callable[[], object], log: Path) -> None:
        # A child that is asked to end before it has become a process of its own would end as the driver does.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become_a_process(log)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
                task()
                status = 0
            except SystemExit as end:
                status = int(end.code or 0)
            except KeyboardInterrupt:
                status = 130
            except BaseException:  # noqa: BLE001 - nothing of the driver may run in its child
                traceback.print_exc()
                status = 1
            os._exit(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        os.kill(self.pid, signal.SIGINT)
        self.resume()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait until it ends by itself. Returns its exit status."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def has_ended(self) -> bool:
        """Return True if it has ended without being killed. Call this once only."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0


def _become_a_process(log: Path) -> None:
    with suppress(OSError, AttributeError):  # on Linux a child can ask to die with its parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
