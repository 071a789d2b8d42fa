"""Random members near one member."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ..codec.filters import Clause, Scope
from ..codec.units import Number
from ..redis import scripts
from ..redis.keys import Keys
from .groups import exclude_for_now
from .intersections import EVERY, Intersection
from .positions import Locate
from .query import Query, one
from .request import FEW, Call, Request
from .samples import NOBODY, Excluded, Progress, Sample, packed, packed_bands, parse_sample, span
from .view import View
from .whole import draw_whole

__all__ = ["Draw", "Excluded", "Sample"]

_SPARE_NUMBERS: Final = 8
"""Extra random numbers, in place of the few that are rejected so that every member is equally likely."""

_EXCLUDED_AT_ONCE: Final = 5000
"""The most excluded members that are passed to a script; more are first put into a set."""

_RANKED_AT_ONCE: Final = 25
"""The most members whose ranks are searched for in the round trip that draws them."""

_LOOK_UPS: Final = 500
"""Look-ups of one round trip that tests members."""

_MOST_TESTED: Final = 10_000
"""The most members tested one by one: beyond, an intersection is cheaper, and is kept for others."""

_MOST_NARROWED: Final = 20_000
"""The most members of a band whose intersection is made for that band alone."""


class Draw(NamedTuple):
    """Draw random distinct members near a member; None if that is not ranked."""

    member: str
    wanted: int

    bands: Sequence[tuple[Number, Number]]
    """Distances below and above, tried in turn."""

    measure: str = "score"
    """The unit of distances: "score"; "exact", scores that may lie beyond 2**53; "ranks"."""

    excluded: Excluded = ()

    remember: int | None = None
    """Microseconds for which the members drawn are not drawn again."""

    seed: int | str | bytes | None = None
    """The same seed draws the same members."""

    given: Sequence[tuple[Any, Any]] = ()
    """The same bands as the caller gave them."""

    sort_key: tuple[float, bytes] | None = None
    """The score of the member and its stored form, if the caller knows them. Saves a round trip over shards."""

    def numbers(self) -> Callable[[int], bytes]:
        """Return a function from a count to random bytes."""
        return os.urandom if self.seed is None else random.Random(self.seed).randbytes  # noqa: S311 - not for secrets

    def query(self, view: View, keys: Keys) -> Query[Sample | None]:
        """One round trip; more if many members don't pass a combination of filters, or are excluded."""
        if len(self.excluded) > _EXCLUDED_AT_ONCE:
            return (yield from self._excluding_by_set(view, keys))
        if view.ranking is None and self.measure == "ranks":
            return (yield from self._from_intersection(view, keys))  # ranks are known only there
        if view.ranking is None:
            return (yield from self._testing(view, keys))

        light = self.wanted <= FEW and len(self.excluded) <= 10 * FEW and not view.searches_ties
        if view.is_plain and self.measure == "score" and not self.remember:
            arguments = self._arguments(view, keys, self.numbers())
            call = Call(scripts.SAMPLE_NEARBY, (keys.root, keys.meta), arguments, self._cost(view))
            (reply,) = yield Request((call,), light=light)
            if reply[0] != b"out of patience":
                return parse_sample(reply, view)
            return (yield from self._parse(view, keys, reply))
        if view.searches_ties and self.wanted > _RANKED_AT_ONCE:
            sample = yield from self.query(replace(view, method="ordinal"), keys)
            return sample and (yield from self._located(sample, view, keys))
        call = self._anywhere(view, keys, keys.ranking(view.ranking), Progress(self.numbers()))
        reply = yield from one(call, writes=bool(self.remember), light=light)
        return (yield from self._parse(view, keys, reply))

    def _parse(
        self, view: View, keys: Keys, reply: Any, first: int = 0, *, narrow: bool = False
    ) -> Query[Sample | None]:
        """Return the sample in a reply, drawn in further round trips if most of a large side is excluded."""
        if reply[0] != b"out of patience":
            return parse_sample(reply, view, first)
        if narrow or reply[3] > _MOST_TESTED:
            return (yield from self._excluding_by_set(view, keys))
        ranking = view.intersection(keys) if view.ranking is None else keys.ranking(view.ranking)

        def further(band: int) -> Query[Sample | None]:
            call = self._anywhere(view, keys, ranking, Progress(self.numbers(), band))
            reply = yield from one(call, writes=bool(self.remember))
            return (yield from self._parse(view, keys, reply, band))

        excluded = set(map(str, self.excluded))
        sample = yield from draw_whole(self, view, keys, reply, first, excluded, further)
        if sample is None or view.ranking is None or view.method == "ordinal":
            return sample
        return (yield from self._located(sample, view, keys))

    def _testing(self, view: View, keys: Keys) -> Query[Sample | None]:
        """Draw from the smallest ranking that holds all members that pass several filters. Each round trip tests some
        of them, and takes along those found before. After too many tests, draw from the intersection.

        Each round trip deals from all members not found yet, so every order of those found is equally likely, however
        many round trips it takes and whichever members are tested again.
        """
        look_ups, progress = view.scope.look_ups, Progress(self.numbers())
        if self.wanted * look_ups > 4 * _LOOK_UPS:  # those found are tested again in each round trip
            return (yield from self._from_intersection(view, keys))
        while True:
            patience = self._patience(look_ups, len(progress.found), is_first=not progress.tested)
            cost = self._cost(view, patience * (1 + look_ups) + len(progress.found) * (2 + look_ups))
            call = self._anywhere(
                view, keys, keys.root, progress, cost, str(view.scope), patience, view.tested(keys)
            )
            reply = yield from one(call, writes=bool(self.remember))
            if reply[0] == b"moved":
                progress = Progress(progress.numbers)
                continue
            if reply[0] != b"out of patience":
                sample = parse_sample(reply, view, progress.band)
                return sample and sample._replace(candidates=None)  # those of a larger ranking were counted
            _, score, band, candidates, is_there = reply[:5]
            tested, at = progress.tested + patience, progress.band + band - 1
            progress = Progress(progress.numbers, at, tested, score, reply[9:])
            if is_there == b"made" and self.seed is None:
                return (yield from self._from_intersection(view, keys, progress))
            if tested >= min(candidates / 2, _MOST_TESTED // max(1, look_ups // 2)):
                narrow = candidates <= _MOST_NARROWED
                return (yield from self._from_intersection(view, keys, progress, narrow=narrow))

    def _from_intersection(
        self, view: View, keys: Keys, progress: Progress | None = None, *, narrow: bool = False
    ) -> Query[Sample | None]:
        """Draw from the intersection of several filters; ``narrow``: made only for the bands that are left."""
        progress = (progress or Progress(self.numbers()))._replace(found=())
        scores = span(self.bands[progress.band :], float(progress.since)) if narrow else EVERY
        if not narrow:
            progress = progress._replace(since=b"")
        draw = self
        if not self.excluded or isinstance(self.excluded[0], str):
            # An intersection may be some seconds old, and have the asking member at its former position.
            draw = self._replace(excluded=[*map(str, self.excluded), self.member])
        made = Intersection(view, keys, scores)
        call = draw._anywhere(view, keys, made.key, progress)
        if self.remember:
            # A draw from an intersection that is about to be made again would be remembered, but never seen.
            yield from made.read()
            reply = yield from one(call, writes=True)
        else:
            (reply,) = (yield from made.read(call)).replies
        if reply[0] == b"moved":
            return (yield from self.query(view, keys))
        return (yield from draw._parse(view, keys, reply, progress.band, narrow=narrow))

    def _excluding_by_set(self, view: View, keys: Keys) -> Query[Sample | None]:
        """Exclude by a temporary group, at a cost independent of the number of members excluded."""
        name = keys.excluded(secrets.token_hex(8))
        key, members = keys.group(name), [*map(str, self.excluded), self.member]
        draw = self._replace(excluded=())
        yield from exclude_for_now(key, members)
        if self.measure == "ranks":
            sample = yield from draw._outside(view, keys, name, set(members), Progress(self.numbers()))
        else:
            scope = Scope((*view.scope.clauses, Clause(True, "g", (name,))))
            sample = yield from draw.query(replace(view, scope=scope), keys)
        # Members of the group are candidates, too.
        if sample and view.ranking is None:
            sample = sample._replace(candidates=None)
        elif sample:
            alone = draw._replace(wanted=1, bands=[self.bands[sample.band]], remember=None)
            one_drawn = yield from alone.query(view, keys)
            sample = sample._replace(candidates=(one_drawn or sample).candidates)
            sample = yield from self._located(sample, view, keys)
        was_there = yield from one(Call("UNLINK", (key,)), writes=True)
        if sample is None or was_there:
            return sample
        # The group was evicted, so members drawn since then may be excluded ones.
        return sample.without(set(members), view)

    def _outside(
        self, view: View, keys: Keys, name: str, excluded: Collection[str], progress: Progress
    ) -> Query[Sample | None]:
        """Draw by ranks, which count members of the group too, so from a ranking that holds these. After too many
        tests, read the band. ``excluded``: the members of the group."""
        ranking = view.intersection(keys) if view.ranking is None else keys.ranking(view.ranking)
        plain = replace(view, method="ordinal")

        def again(band: int) -> Query[Sample | None]:
            return self._outside(view, keys, name, excluded, Progress(progress.numbers, band))

        while True:
            patience = self._patience(1, len(progress.found), is_first=False)
            cost = self._cost(view, 2 * patience)
            call = self._anywhere(plain, keys, ranking, progress, cost, "-g1", patience, (keys.group(name),))
            if view.ranking is None:
                yield from Intersection(view, keys).read()
            reply = yield from one(call, writes=bool(self.remember))
            if reply[0] == b"moved":
                progress = Progress(progress.numbers)
                continue
            if reply[0] != b"out of patience":
                return parse_sample(reply, plain, progress.band)
            _, score, band, candidates = reply[:4]
            tested, at = progress.tested + patience, progress.band + band - 1
            if tested >= min(candidates / 2, _MOST_TESTED):
                return (yield from draw_whole(self, plain, keys, reply, progress.band, excluded, again))
            progress = Progress(progress.numbers, at, tested, score, reply[9:])

    def _located(self, sample: Sample, view: View, keys: Keys) -> Query[Sample]:
        """Add the ranks of a sample's members, looked up in a further round trip."""
        split = view.layout.split
        members = [self.member, *(split(stored)[1].decode() for _, stored, _ in sample.drawn)]
        return sample.located((yield from Locate(members).query(view, keys)), view)

    def _anywhere(
        self,
        view: View,
        keys: Keys,
        ranking: str,
        progress: Progress,
        cost: int | None = None,
        tests: str = "",
        patience: int = 0,
        tested: Sequence[str] = (),
    ) -> Call:
        left = self._replace(bands=self.bands[progress.band :])
        seen = keys.seen(self.member) if self.remember else keys.meta
        return Call(
            scripts.SAMPLE_ANYWHERE,
            (ranking, keys.root, keys.meta, seen, view.intersection(keys), *tested),
            (
                *left._arguments(view, keys, progress.numbers, patience),
                *(view.layout.width, int(view.layout.memberships), self.measure),
                # Under several filters ranks are unknown.
                "ordinal" if view.ranking is None else view.method,
                *(tests, patience, self.remember or "", progress.since, *progress.found),
            ),
            self._cost(view) if cost is None else cost,
        )

    def _arguments(
        self, view: View, keys: Keys, numbers: Callable[[int], bytes], patience: int = 0
    ) -> tuple[Any, ...]:
        """Return the arguments that both scripts take."""
        misses = 2 * (self.wanted + 17) if self.excluded or self.remember or patience else 0
        return (
            self.member,
            self.wanted,
            "1" if view.reverse else "0",
            packed_bands(tuple(self.bands), self.measure),
            packed(self.excluded) if self.excluded else NOBODY,
            numbers(6 * (self.wanted + misses + patience + _SPARE_NUMBERS)),
            keys.generation,
        )

    def _cost(self, view: View, look_ups: int = 0) -> int:
        """Return the microseconds that a call may take that makes so many look-ups besides those of a draw."""
        each = 16 if view.searches_ties and self.wanted <= _RANKED_AT_ONCE else 1
        look_ups += 15 + each * self.wanted + len(self.excluded) // 100 + (250 if self.remember else 0)
        return 4 * look_ups

    def _patience(self, look_ups: int, found: int, *, is_first: bool) -> int:
        """Return the number of members that may fail the tests, of so many look-ups, before a round trip gives up.
        ``found``: members found before, which are tested again."""
        most = max(1, _LOOK_UPS // (1 + look_ups))
        if is_first:
            return min(most, max(self.wanted + 16, (8 * self.wanted + 64) // look_ups))
        return max(1, most // 2, most - found)
