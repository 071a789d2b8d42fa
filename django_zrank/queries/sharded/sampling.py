"""Random members near one member, over shards."""

from __future__ import annotations

from dataclasses import replace
from random import Random, SystemRandom
from typing import Any, Final

from ...codec.units import EXACT, HIGHEST, LOWEST, NUL, pack, unpack
from ...redis import scripts
from ..groups import remember_shown
from ..query import Query, one, together
from ..request import Call
from ..samples import Sample
from ..sampling import Draw
from ..view import ALL, View
from .decks import Walk
from .positions import find_sort_keys
from .runs import NEAR, read_around, read_at, share
from .shards import Shards
from .sort_keys import SortKey, count_before

__all__ = ["draw"]

_SMALL: Final = 16
"""The most members of a side that a shard deals whole, so that small bands take one round trip."""

_SMALL_TESTED: Final = 4
"""The same, if members have to be tested."""

_LOOK_UPS: Final = 200
"""Look-ups of a round trip for either side, for each shard."""

_PATIENCE: Final = 200, 10_000
"""The bounds of the number of members, half of the candidates, that may fail the tests before the filters are
intersected."""

Ends = tuple[str, bytes, str, bytes]
"""The score and bytes of the start of a band (inclusive) and of its end (exclusive), for ``deal_shard.lua``."""


def draw(question: Draw, view: View, shards: Shards, *, again: bool = True) -> Query[Sample | None]:
    """Draw random distinct members near a member.

    Two round trips: the member's own shard returns its sort key, then all shards deal. One if the caller knows the sort
    key, and that is still the member's. One more for a band of ranks; rarely more for a band of scores.

    ``again``: begin again if the member has another sort key by the time of the deal.
    """
    drawing = _Drawing(question, view, shards, again=again)
    if not question.remember:
        return (yield from drawing.run())
    _, sample = yield from together([drawing.read_shown(question.remember), drawing.run()], spread=True)
    return sample


class _Drawing:
    """A draw that is under way."""

    me: SortKey
    walk: Walk

    band: int
    """The number of the band that is drawn from."""

    ends: Ends
    """Its ends."""

    price: int
    """Look-ups for each card."""

    def __init__(self, question: Draw, view: View, shards: Shards, *, again: bool) -> None:
        self.question, self.view, self.shards = question, view, shards
        self.rng: Random = SystemRandom() if question.seed is None else Random(question.seed)  # noqa: S311
        self.own = shards.of(question.member)
        self.tests = view.ranking is None and question.measure != "ranks"
        self._again = again
        self._shown: dict[bytes, int] = {}
        self._passed_over: list[tuple[int, SortKey]] = []
        self._dealt: set[bytes] = set()
        """Members offered or passed over: one that moves between two round trips may be dealt twice."""

        excluded = question.excluded
        self._to_key: Any = int if excluded and isinstance(excluded[0], int) else bytes.decode
        self._excluded = {self._to_key(question.member.encode()), *excluded}

    def read_shown(self, span: int) -> Query[None]:
        """Read the members that were shown to the member before."""
        own, member = self.shards.own(self.question.member), self.question.member
        shown = yield from remember_shown(own, member, span)
        self._shown = {who: at for at, who in enumerate(shown)}

    def run(self) -> Query[Sample | None]:
        """Draw; None if the member is not ranked."""
        me = self.question.sort_key and SortKey(*self.question.sort_key)
        if me is None:
            member = self.question.member
            sort_keys = yield from find_sort_keys([member], replace(self.view, scope=ALL), self.shards)
            if (me := sort_keys.get(member)) is None:
                return None
        self.me = me
        return (yield from self._of_band(0))

    def _of_band(self, at: int) -> Query[Sample | None]:
        """Draw from the band with this number, or from a later one."""
        self.band = at
        below, above = self.question.bands[at]
        if self.question.measure == "ranks":
            ends = yield from self._ends(int(below), int(above))
        elif self.question.measure == "exact":
            ends = self._exact_ends(int(below), int(above))
        else:
            ends = (f"({self.me.score - below:.17g}", b"", f"{self.me.score + above:.17g}", b"")
        return (yield from self._deal(ends))

    def _is_offered(self, card: SortKey, side: int) -> bool:
        who = self.view.layout.split(card.stored)[1]
        if (card > self.me) != bool(side) or who in self._dealt or self._to_key(who) in self._excluded:
            return False
        self._dealt.add(who)
        if who in self._shown:
            self._passed_over.append((self._shown[who], card))
            return False
        return True

    def _deal(self, ends: Ends) -> Query[Sample | None]:
        """Take cards of the picked shards until there are enough."""
        self.ends = ends
        self.price = 1 + (self.view.scope.look_ups if self.tests else 0)
        self._passed_over.clear()
        self._dealt.clear()
        least, most = _PATIENCE
        question, count = self.question, len(self.shards.keys)
        self.walk = Walk(
            question.wanted,
            count,
            self.rng,
            self._is_offered,
            reverse=self.view.reverse,
            patience=lambda candidates: max(least, min(candidates // 2, most)) // max(1, self.price // 2),
            most=max(1, _LOOK_UPS * count // self.price),
        )
        walk = self.walk
        picks = walk.pick()
        while any(picks):
            if wants := walk.wants(picks):
                asked = [self._ask_one(shard, counts) for shard, counts in wants.items()]
                if any((yield from together(asked, spread=True))):
                    question = self.question._replace(sort_key=None)
                    again = bool(self.question.sort_key)
                    return (yield from draw(question, self.view, self.shards, again=again))
            else:
                walk.take(picks)
                picks = walk.pick()
        if walk.gave_up:
            self.tests = False
            return (yield from self._deal(self.ends))
        drawn = [sort_key for side in walk.chosen for sort_key in side]
        if len(drawn) < self.question.wanted and self.band + 1 < len(self.question.bands):
            return (yield from self._of_band(self.band + 1))
        shown = [sort_key for _, sort_key in sorted(self._passed_over)]
        drawn += shown[: self.question.wanted - len(drawn)]
        candidates = None if self.tests else walk.candidates  # shards may deal from larger rankings
        return (yield from self._finish(Sample(None, 0, self.band, candidates, [], None), drawn))

    def _ask_one(self, shard: int, counts: tuple[int, int]) -> Query[bool]:
        """Ask a shard for numbers of cards below and above. Return True if the member has moved."""
        view, keys = self.view, self.shards.keys[shard]
        is_own = shard == self.own
        decks = [side[shard] for side in self.walk.decks]
        standing = "checked" if self._again else "own"
        arguments = (
            *(keys.generation, view.layout.width, int(view.layout.memberships)),
            *(repr(self.me.score), self.me.stored, standing if is_own else "other"),
            *self.ends,
            *(str(view.scope) if self.tests else "", _SMALL_TESTED if self.tests else _SMALL),
            *(word for deck, count in zip(decks, counts, strict=True) for word in deck.ask(count, self.rng)),
        )

        cards = max(sum(counts), 2 * _SMALL_TESTED if self.tests else 0)
        cost = 50 + 4 * self.price * cards + sum(deck.dealt for deck in decks) // 2
        if self.tests:
            where = (keys.root, keys.root, keys.meta, *view.tested(keys))
            reply = yield from one(Call(scripts.DEAL_SHARD, where, arguments, cost))
        else:
            reply = yield from view.read(keys, scripts.DEAL_SHARD, arguments, cost)
        word, *dealt = reply
        if word == b"moved":
            return True
        if is_own:
            self._again = False  # the member was there at one moment of the draw
        self.walk.add(shard, counts, dealt)
        return False

    def _finish(self, sample: Sample, drawn: list[SortKey]) -> Query[Sample]:
        """Remember the members drawn, and return them. Positions only order these members: ranks, which aren't always
        used, cost more to count than the draw."""
        order = {sort_key: at for at, sort_key in enumerate(sorted([self.me, *drawn]))}
        cards = [(order[sort_key], sort_key.stored, sort_key.score) for sort_key in drawn]
        if self.question.remember and drawn:
            own, member = self.shards.own(self.question.member), self.question.member
            members = [self.view.layout.split(sort_key.stored)[1] for sort_key in drawn]
            yield from remember_shown(own, member, self.question.remember, members)
        return sample._replace(position=order[self.me], drawn=cards)

    def _exact_ends(self, below: int, above: int) -> Ends:
        """Return the ends of a band of 64-bit integers, whose scores may be rounded."""
        width = self.view.layout.width
        tie = self.view.layout.split(self.me.stored)[0]
        mine = unpack(tie[-8:] if not width else tie[:8]) if tie else int(self.me.score)

        def limit(units: int) -> tuple[str, bytes]:
            units = min(max(units, LOWEST), HIGHEST)
            if not width and -EXACT < units < EXACT:
                return f"({units}", b""
            return repr(float(units)), pack(units) if width else NUL + pack(units)

        end = limit(mine + above + 1) if mine + above < HIGHEST else ("+inf", b"")
        return *limit(mine - below), *end

    def _ends(self, below: int, above: int) -> Query[Ends]:
        """Find the ends of a band that is given in positions below and above the member."""
        view = self.view.by("ordinal")
        back, ahead = (above, below) if view.reverse else (below, above)

        def ends(found: list[SortKey]) -> Ends:
            first, last = (found[0], found[-1]) if found else (self.me, self.me)
            low, high = (last, first) if view.reverse else (first, last)
            # No bytes mean a score: an empty key comes first among those with its score.
            start = (repr(low.score), low.stored) if low.stored else (f"({low.score!r}", b"")
            return *start, repr(high.score), high.stored + NUL

        def spans(size: int, position: int) -> tuple[int, int]:
            return min(back, position), min(ahead + 1, size - position)

        most = max(back, ahead) + 1
        if most <= NEAR * len(self.shards.keys):
            wanted = share(most, self.shards)
            around, found = yield from read_around(self.me, spans, wanted, view, self.shards)
            last = min(back, around.position) + ahead + (self.me in found)
            return ends(found[:last])
        counted = yield from count_before([self.me], view, self.shards)
        (position,) = counted.before
        first, last = max(0, position - back), min(counted.size, position + ahead + counted.here) - 1
        if first > last:
            return ends([])
        reads = [read_at(at, 1, view, self.shards) for at in (first, last)]
        both = yield from together(reads, spread=True)
        return ends([sort_key for _, found in both for sort_key in found])
