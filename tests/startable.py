"""A base of servers that tests start and stop by a ``with`` statement."""

from __future__ import annotations

from typing import Self

__all__ = ["Startable"]


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
