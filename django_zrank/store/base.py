"""The calls that all parts of a store make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ..codec.layout import PLAIN, Layout
from ..queries.counts import Size
from ..queries.request import Call, Request
from ..queries.view import View
from ..redis.executor import Executor
from ..redis.scripts import Script

__all__ = ["Base"]


class Base(Executor):
    """One index in Redis. Members and scores are text and numbers here."""

    WINDOW: ClassVar[float] = 600
    """The least number of seconds for which the version of a member's newest write is kept. A write that takes twice as
    long is refused."""

    LEASE: ClassVar[float] = 600
    """Seconds without a heartbeat after which a rebuild counts as dead."""

    def __init__(self, name: str, layout: Layout = PLAIN, rule: str = "") -> None:
        super().__init__(name)
        self.layout = layout

        self.rule = rule
        """The way in which changes that began in Redis are merged into a score; '' if there are none."""

        self.flushed: int | None = None
        """The last flush that the rows to be written contain; None if no row was found."""

    def _call(self, command: Script | str, keys: Sequence[Any], arguments: Sequence[Any] = ()) -> Any:
        return self.send(Request((Call(command, keys, arguments),)))[0]

    def _noted(self, *fields: str) -> list[str]:
        """Return fields of the index's ``meta``, '' for those that are missing."""
        return [(value or b"").decode() for value in self._call("HMGET", (self.keys.meta,), fields)]

    def _is_done(self, script: Script, keys: Sequence[Any], arguments: Sequence[Any]) -> bool:
        """Return True if a script has done its work; False if it was superseded, with nothing changed."""
        return bool(self._call(script, keys, arguments) == b"done")

    def size(self) -> int:
        return self.run(partial(Size().query, View(self.layout)))

    @property
    def _layout(self) -> tuple[int, int, int]:
        """The layout as writing scripts take it. Reading scripts don't take the last."""
        return self.layout.width, int(self.layout.memberships), int(self.layout.dense)
