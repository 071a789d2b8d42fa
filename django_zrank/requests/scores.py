"""Changes of scores that begin in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..codec.layout import Layout
from ..keys import Keys
from ..scripts import CHANGE_SCORES, INCREMENT_SCORES, TOUCH_MEMBERS
from .request import Call, Request, in_turn

__all__ = ["CHANGES", "LIMIT", "ChangeScores", "Changed", "Touch"]

LIMIT = 1000
"""The most members that one call touches."""

CHANGES = 200
"""The most scores that one call changes where each member stands in one ranking: all are changed at once."""

_TOUCHED = 200
"""The most members that are touched in one round trip."""


class Changed(NamedTuple):
    """The result of a change: nothing was changed unless it is ``done``."""

    verdict: str
    """``done``; ``missing``, members aren't ranked; ``beyond``, scores would leave the column's range;
    ``reused``, the key is that of another call."""

    results: list[Any]
    """The new scores in units, or the members that it is about, as text."""


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

    faceted: bool = True
    """True if members may stand in rankings of facets: memberships can also be those of integers beyond ±2**53."""

    def request(self, keys: Keys) -> Request[Changed]:
        """The request. Without a key it is sent once: a second time, it would change scores twice."""
        changes = chain.from_iterable(self.changes)
        is_alone = not (self.layout.dense or (self.faceted and self.layout.memberships))
        if self.rule == "sum" and is_alone and not self.key:
            names: tuple[str, ...] = (keys.root, keys.meta, keys.pending)
            call = Call(INCREMENT_SCORES, names, (keys.generation, *self.limits, *changes))
            return Request((call,), _parse, writes=True, once=True)
        layout = int(self.layout.memberships), int(self.layout.dense)
        arguments: list[Any] = [
            keys.generation,
            *layout,
            self.rule,
            *self.limits,
            self.keep if self.key else "",
            *changes,
        ]
        names = (keys.root, keys.meta, keys.pending, keys.once(self.key))
        call = Call(CHANGE_SCORES, names, arguments)
        return Request((call,), _parse, writes=True, once=not self.key)


class Touch(NamedTuple):
    """A note that members were seen now."""

    layout: Layout
    members: Sequence[str]

    def request(self, keys: Keys) -> Request[list[str]]:
        """The request: some members a round trip. The answer: those that aren't ranked."""
        names = (keys.root, keys.meta, keys.touched, keys.due)
        how = (keys.generation, int(self.layout.memberships))
        pieces = [self.members[at : at + _TOUCHED] for at in range(0, len(self.members), _TOUCHED)]
        calls = [Call(TOUCH_MEMBERS, names, (*how, *piece)) for piece in pieces]
        requests = [Request((call,), _texts, writes=True) for call in calls]
        return in_turn(requests).then(lambda missing: list(chain.from_iterable(missing)))


def _texts(replies: list[list[bytes]]) -> list[str]:
    return [text.decode() for text in replies[0]]


def _parse(replies: list[Any]) -> Changed:
    verdict, *found = replies[0]
    if verdict == b"done":
        return Changed("done", list(map(int, found)))
    return Changed(verdict.decode(), [text.decode() for text in found])
