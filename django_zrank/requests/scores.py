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

CHANGES = 150
"""The most scores that one call changes, all at once, if each member is in one ranking only."""

_TOUCHED = 200
"""The most members that are touched in one round trip."""


class Changed(NamedTuple):
    """The result of a change. Unless it is ``done``, nothing was changed."""

    verdict: str
    """``done``; ``missing`` if members aren't ranked; ``beyond`` if scores would leave the column's range; ``reused``
    if another call had this key."""

    results: list[Any]
    """The new scores in units, or the members concerned, as text."""


class ChangeScores(NamedTuple):
    layout: Layout
    rule: str
    limits: tuple[int, int]

    changes: Sequence[tuple[str, int]]
    """Members as text, with their changes in units."""

    key: str = ""
    """The idempotency key: a call that is sent repeatedly is made once."""

    keep: int = 0
    """Seconds for which the key is remembered."""

    faceted: bool = True
    """True if members may be in rankings of facets. Integers beyond ±2**53 alone have memberships, too."""

    def request(self, keys: Keys) -> Request[Changed]:
        """Return the request. Without a key it is sent once, as sending it again would change scores twice."""
        changes = chain.from_iterable(self.changes)
        is_alone = not (self.layout.dense or (self.faceted and self.layout.memberships))
        if self.rule == "sum" and is_alone and not self.key:
            names: tuple[str, ...] = (keys.root, keys.meta, keys.pending)
            call = Call(INCREMENT_SCORES, names, (keys.generation, *self.limits, *changes))
            return Request((call,), _parse, writes=True, once=True)
        names = (keys.root, keys.meta, keys.pending, keys.once(self.key))
        how = (int(self.layout.memberships), int(self.layout.dense), self.rule, *self.limits)
        call = Call(CHANGE_SCORES, names, (keys.generation, *how, self.keep if self.key else "", *changes))
        return Request((call,), _parse, writes=True, once=not self.key)


class Touch(NamedTuple):
    """A note that members were seen now."""

    layout: Layout
    members: Sequence[str]

    def request(self, keys: Keys) -> Request[list[str]]:
        """Return the request: some members a round trip. The answer: those that aren't ranked."""
        names = (keys.root, keys.meta, keys.touched, keys.due)
        how = (keys.generation, int(self.layout.memberships))
        pieces = [self.members[at : at + _TOUCHED] for at in range(0, len(self.members), _TOUCHED)]
        calls = [Call(TOUCH_MEMBERS, names, (*how, *piece), 5 * len(piece)) for piece in pieces]
        requests = [Request((call,), _texts, writes=True) for call in calls]
        return in_turn(requests).then(lambda missing: list(chain.from_iterable(missing)))


def _texts(replies: list[list[bytes]]) -> list[str]:
    return [text.decode() for text in replies[0]]


def _parse(replies: list[Any]) -> Changed:
    verdict, *found = replies[0]
    if verdict == b"done":
        return Changed("done", list(map(int, found)))
    return Changed(verdict.decode(), [text.decode() for text in found])
