"""Draws among the members that pass several filters: cards are tested as they are dealt, until too few pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..queries.draws import Drawing, Limits
from ..queries.request import Call
from ..queries.steps import Steps, one
from ..redis.scripts import Script
from .making import combined_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..redis.keys import Keys
    from .view import CombinedView

__all__ = ["TestedDrawing"]

DEAL_TESTED: Final = Script("deal_tested", __package__)

_SMALL: Final = 4
"""The most members of a side that is dealt whole."""

_LOOK_UPS: Final = 400
"""Look-ups of a round trip for either side."""

_GATHERED: Final = 3000
"""Microseconds that it takes to gather up to 1,000 members of small groups."""

_GATHERED_MEMBERS: Final = 1000
"""The most members that are gathered: ``MOST`` in ``deal_tested.lua``."""

_PATIENCE: Final = 200, 5_000
"""The bounds of the number of members, half of the candidates, that may fail the tests before the band is read to its
end, or the filters are combined."""

_READ: Final = 20_000
"""The most members of a band that is read to its end in place of a combined filter."""


class Anew(Exception):
    """The draw from a band begins anew in another way; its cards are given up."""


class TestedDrawing(Drawing):
    """A draw that is under way among the members that pass several filters."""

    view: CombinedView

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        by_rank = self.draw.measure == "ranks"
        groups = any(clause.kind == "g" and not clause.negated for clause in self.view.filters.clauses)
        self._gathering = ("yes" if by_rank else "") if groups else "no"
        """If the members of small groups are gathered: "yes", "no", or "" to let each index that deals choose."""

        self._gathered: dict[str, str] = {}
        """The choice of each index in this band, by the key of its members."""

        self._price = price = 1 + self.view.filters.look_ups
        """Look-ups for each card."""

        self._limits_without = self.limits
        self._limits_of_tests = Limits(
            _SMALL, max(1, _LOOK_UPS // price), max(1, self.limits.page // (2 * price))
        )

        self._tests = not by_rank or self._gathering == "yes"
        """True if cards are tested, false if they are dealt from the combined filter."""

        self._made = False
        """True if the combined filter was there when the newest cards were dealt."""

    def _from_band(self, band: int) -> Steps[bool]:
        while True:
            self._gathered.clear()
            self._made = False
            self.limits = self._limits_of_tests if self._tests else self._limits_without
            try:
                return (yield from super()._from_band(band))
            except Anew:
                pass

    @property
    def read_at_once(self) -> int:
        return _GATHERED_MEMBERS if self._tests else 0

    def _take(self, more: int) -> Steps[bool]:
        may_go_on = yield from super()._take(more)
        if may_go_on and self._tests and self._is_sparse():
            if not self._gathering:
                self._gathering = "yes"
                raise Anew
            if self._uses_made or self._inside > _READ:
                self._tests = False
                raise Anew
            for side in self._hand.sides:
                side.read_on()
        return may_go_on

    def _is_sparse(self) -> bool:
        """Return True if too few pass the tests: then a small band is read to its end. Of a large one, the filters are
        combined, and what was drawn is given up: this depends on numbers alone, so it favours nobody."""
        if not any(self._hand.lacks()):
            return False
        least, most = _PATIENCE
        patience = max(least, min(self._inside // 2, most)) // max(1, self._price // 2)
        return self._hand.failed > patience or self._uses_made

    @property
    def _uses_made(self) -> bool:
        """True if the filters have been combined before; a seed draws the same members in any case."""
        return self._made and self.draw.seed is None

    @property
    def _counts_candidates(self) -> bool:
        return not self._tests and super()._counts_candidates

    def _most_for(self, count: int) -> int:
        return min(self.limits.cards, 8 * count + 16) if self._tests else super()._most_for(count)

    def _cost_of_a_card(self, *, in_order: bool) -> int:
        return self._price * 4 if self._tests else super()._cost_of_a_card(in_order=in_order)

    def _deal(self, keys: Keys, arguments: Sequence[Any], cost: int) -> Steps[Any]:
        if not self._tests:
            return (yield from super()._deal(keys, arguments, cost))
        view = self.view
        key = combined_filter(view, keys)
        where = (keys.root, keys.root, keys.meta, key, *view.sets(keys))
        gathering = self._gathered.get(keys.root, self._gathering)
        call = Call(
            DEAL_TESTED.using(view.ranks.package),
            where,
            (*arguments, str(view.filters), gathering),
            cost + (_GATHERED if self._gathering != "no" else 0),
        )
        reply = yield from one(call)
        if reply[0] == b"not gathered":
            self._gathering, self._tests = "no", False
            raise Anew
        if reply[0] == b"dealt":
            made = reply[-1]
            if made == b"gathered":
                self._gathered[keys.root] = "yes"
            elif not self._gathering:
                self._gathered[keys.root] = "no"
            self._made = made == b"made" and self._gathering == "no"
        return reply
