"""``touch()``: members were seen now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from ..codec.layout import Layout
from ..declaration import Index
from ..exceptions import NotRanked
from ..queries.request import Blocking, Call
from ..queries.steps import Steps, one
from ..redis import reader_of
from ..redis.keys import Keys
from ..redis.scripts import Script
from ..redis.verbs import async_version, named_members, verb
from .declaration import IdleIndex

__all__ = ["LIMIT", "Touch", "Touching", "touch", "touched_key"]

TOUCH_MEMBERS: Final = Script("touch_members", __package__)

LIMIT: Final = 1000
"""The most members that one call touches."""

_TOUCHED: Final = 200
"""The most members that are touched in one round trip."""


def touched_key(keys: Keys) -> str:
    """Sorted set: member -> when its column may be written again after a touch, in microseconds."""
    return f"{keys.tag}:touched"


class Touch(NamedTuple):
    """A note that members were seen now."""

    layout: Layout
    members: Sequence[str]

    rest: int = 2**53
    """Microseconds between two writes of a column."""

    def steps(self, keys: Keys) -> Steps[tuple[list[str], list[str]]]:
        """Return those that aren't ranked, and those whose column is due. Some members a round trip."""
        names = (keys.root, keys.meta, touched_key(keys))
        how = (keys.build, int(self.layout.memberships), self.rest)
        found: tuple[list[str], list[str]] = [], []
        for at in range(0, len(self.members), _TOUCHED):
            piece = self.members[at : at + _TOUCHED]
            call = Call(TOUCH_MEMBERS, names, (*how, *piece), 5 * len(piece))
            for texts, some in zip(found, (yield from one(call, writes=True)), strict=True):
                texts += map(bytes.decode, some)
        return found


class Touching:
    """The verb of ``PlayerRank.scores`` that keeps members ranked."""

    index: Index

    @verb
    def touch(self, *members: Any) -> Steps[None]:
        """Record that members, given as arguments or as one iterable, were seen now. They stay ranked for the time that
        ``idle`` declares, and idle members return to the ranking. Raises :exc:`~django_zrank.NotRanked` if a member has
        no row that can be ranked.
        """
        index = cast(IdleIndex[Any], self.index)
        if index.seen_field is None:
            declared = index.awake and index.awake.path
            raise TypeError(
                f"touch() needs idle with a column of the model itself; the index {index.name!r} declares {declared!r}"
            )
        given = yield from named_members(members)
        texts = list(dict.fromkeys(index.to_text(member, "members") for member in given))
        if len(texts) > LIMIT:
            raise ValueError(f"members: expected at most {LIMIT} members at once, not {len(texts)}")
        if texts:
            for holder in index.place(texts):
                yield reader_of(holder).trusted_server
            yield from touch(index, texts)

    atouch = async_version(touch)


def touch(index: IdleIndex, texts: Sequence[str]) -> Steps[None]:
    """The steps by which members were seen now, on servers that were trusted. Raises ``NotRanked``."""
    missing, due = yield from _touching(index, texts)
    if missing or due:
        yield _see(index, missing, due)
    if missing:
        missing, _ = yield from _touching(index, missing)
    if missing:
        raise NotRanked(f"{', '.join(missing[:5])} is not ranked in {index.name!r}")


def _touching(index: IdleIndex, texts: Sequence[str]) -> Steps[list[list[str]]]:
    """Return the members that aren't ranked, and those whose column is due."""
    layout, awake = index.layout, index.awake
    rest = awake.rest // timedelta(microseconds=1)  # type: ignore[union-attr]
    found = yield from reader_of(index).gathering(
        lambda keys, own: Touch(layout, own, rest).steps(keys), texts
    )
    return [list(chain.from_iterable(texts)) for texts in zip(*found, strict=True)]


def _see(index: IdleIndex, missing: Sequence[str], due: Sequence[str]) -> Blocking[Any]:
    # A declaration loads no Redis.
    from .seeing import see

    missing, due = (list(map(index.from_text, texts)) for texts in (missing, due))
    return Blocking(partial(see, index, missing, due))
