"""Changes of write-behind scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from ..codec.layout import Layout
from ..queries.request import Call
from ..queries.steps import Steps, one
from ..redis.keys import Keys
from ..redis.scripts import Script
from .keys import once_key, pending_key

__all__ = ["CHANGES", "ChangeScores", "Changed"]

CHANGE_SCORES: Final = Script("change_scores", __package__)
INCREMENT_SCORES: Final = Script("increment_scores", __package__)

CHANGES = 150
"""The most scores that one call changes, all at once, if each member is in one ranking only."""


class Changed(NamedTuple):
    """The result of a change. Unless it is ``done``, nothing was changed by this call."""

    outcome: str
    """``done``; ``replayed`` if it was made before, under this key; ``missing`` if members aren't ranked; ``beyond`` if
    scores would leave the column's range; ``reused`` if another call had this key."""

    results: list[Any]
    """The new scores in units, or the members concerned, as text."""


class ChangeScores(NamedTuple):
    layout: Layout

    rule: str
    """With its column and unit, as :attr:`~.declaration.WriteBehindIndex.noted_rule`."""

    limits: tuple[int, int]

    changes: Sequence[tuple[str, int]]
    """Members as text, with their changes in units."""

    key: str = ""
    """The idempotency key: a call that is sent repeatedly is made once."""

    keep: int = 0
    """Seconds for which the key is remembered."""

    faceted: bool = True
    """True if members may be in rankings of facets. Integers beyond ±2**53 alone have memberships, too."""

    def steps(self, keys: Keys) -> Steps[Changed]:
        """Return the steps. Without a key its call is sent once, as sending it again would change scores twice."""
        changes = chain.from_iterable(self.changes)
        is_alone = not (self.layout.beside or (self.faceted and self.layout.memberships))
        if self.rule.startswith("sum") and is_alone and not self.key:
            names: tuple[str, ...] = (keys.root, keys.meta, pending_key(keys))
            call = Call(INCREMENT_SCORES, names, (keys.build, self.rule, *self.limits, *changes))
            return _parse((yield from one(call, writes=True, once=True)))
        names = (keys.root, keys.meta, pending_key(keys), once_key(keys, self.key))
        script = CHANGE_SCORES.using(self.layout.keeper.package)
        how = (int(self.layout.memberships), self.rule, *self.limits)
        call = Call(script, names, (keys.build, *how, self.keep if self.key else "", *changes))
        return _parse((yield from one(call, writes=True, once=not self.key)))


def _parse(reply: list[Any]) -> Changed:
    outcome, *found = reply
    if outcome in (b"done", b"replayed"):
        return Changed(outcome.decode(), list(map(int, found)))
    return Changed(outcome.decode(), [text.decode() for text in found])
