"""Bases of servers that tests start and stop by a ``with`` statement."""

from __future__ import annotations

import signal
import subprocess
from typing import Self

__all__ = ["Freezable", "Startable"]


class Startable:
    """Started on entry; stopped on exit, or when starting fails."""

    def start(self) -> None:
        """Does nothing by default: some run from their construction on."""

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class Freezable(Startable):
    """One process, which can stand still."""

    _process: subprocess.Popen[bytes] | None = None

    def freeze(self) -> None:
        """Stop it where it is: it answers nobody, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after :meth:`freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
