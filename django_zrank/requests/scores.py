"""Changes of scores that begin in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..codec.layout import PLAIN, Layout
from ..keys import Keys
from ..scripts import CHANGE_SCORES, INCREMENT_SCORE
from .request import Call, Request

__all__ = ["LIMIT", "ChangeScores", "Changed"]

LIMIT = 1000
"""The most members that one call changes."""


class Changed(NamedTuple):
    """The result of a change: nothing was changed unless it is ``done``."""

    verdict: str
    """``done``; ``missing``, members aren't ranked; ``beyond``, scores would leave the column's range;
    ``reused``, the key is that of another call."""

    texts: list[str]
    """The new scores in units, or the members that it is about."""


class ChangeScores(NamedTuple):
    """A change of some scores."""

    layout: Layout
    rule: str
    limits: tuple[int, int]

    changes: Sequence[tuple[str, int]]
    """Each member as text, with its change in units."""

    key: str = ""
    """The name of this very call: it is made once, however often it is sent."""

    keep: int = 0
    """Seconds for which that is remembered."""

    def request(self, keys: Keys) -> Request[Changed]:
        """The request. Without a key it is sent once: a second time, it would change scores twice."""
        if self.rule == "sum" and self.layout == PLAIN and len(self.changes) == 1 and not self.key:
            names: tuple[str, ...] = (keys.root, keys.meta, keys.pending)
            call = Call(INCREMENT_SCORE, names, (keys.generation, *self.limits, *self.changes[0]))
            return Request((call,), _parse, writes=True, once=True)
        layout = int(self.layout.memberships), int(self.layout.dense)
        arguments: list[str | int] = [
            keys.generation,
            *layout,
            self.rule,
            *self.limits,
            self.keep if self.key else "",
        ]
        for change in self.changes:
            arguments += change
        names = (keys.root, keys.meta, keys.pending, keys.once(self.key))
        call = Call(CHANGE_SCORES, names, arguments)
        return Request((call,), _parse, writes=True, once=not self.key)


def _parse(replies: list[list[bytes]]) -> Changed:
    verdict, *texts = (part.decode() for part in replies[0])
    return Changed(verdict, texts)
