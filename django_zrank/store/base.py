"""The calls that all parts of a store make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ..codec.layout import PLAIN, Layout
from ..engine.executor import Executor
from ..requests.counts import Size
from ..requests.request import Call, Request
from ..requests.view import View
from ..scripts import Script

__all__ = ["Base"]


class Base(Executor):
    """One index in Redis. Members and scores are text and numbers here."""

    WINDOW: ClassVar[float] = 600
    """Seconds for which the version of a member's newest write is remembered at least; a write that took twice as long
    is refused."""

    LEASE: ClassVar[float] = 600
    """Seconds without a sign of life after which a rebuild counts as dead."""

    def __init__(self, name: str, layout: Layout = PLAIN, rule: str = "") -> None:
        super().__init__(name)
        self.layout = layout

        self.rule = rule
        """The way in which changes that began in Redis join a score; '' where none do."""

        self.flushed: int | None = None
        """The last flush that the database had noted when the rows were read that are about to be written; None where
        no row was found."""

    def _call(self, command: Script | str, keys: Sequence[Any], arguments: Sequence[Any] = ()) -> Any:
        """The reply to one call."""
        return self.send(Request((Call(command, keys, arguments),), list))[0]

    def _is_done(self, script: Script, keys: Sequence[Any], arguments: Sequence[Any]) -> bool:
        """True if a script did what it is for. False: superseded, with nothing changed."""
        return bool(self._call(script, keys, arguments) == b"done")

    def size(self) -> int:
        """The number of ranked members."""
        return self.run(partial(Size().request, View(self.layout)))

    @property
    def _layout(self) -> tuple[int, int, int]:
        """The layout as scripts take it; those that only read don't take the last."""
        return self.layout.width, int(self.layout.memberships), int(self.layout.dense)
