"""Groups: sets of members that the caller keeps, such as the viewers of a live show."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ..codec.filters import quote_group
from ..declaration import Declaration
from ..exceptions import IndexUnavailable
from ..members import batched
from ..queries.query import Query, one
from ..queries.request import Call
from ..redis import reader_of
from ..redis.keys import Keys
from ..redis.scripts import Script
from ..redis.verbs import Batches, async_iterator, async_version, in_batches, named_members, verb

__all__ = ["Group", "Grouping"]

logger = logging.getLogger("django_zrank")

CHANGE_GROUP: Final = Script("change_group", __package__)
CLAIM_MEMBERS: Final = Script("claim_members", __package__)
COUNT_GROUP: Final = Script("count_group", __package__)
READ_GROUP: Final = Script("read_group", __package__)

_PART: Final = 500
"""Members that are added, removed or read in one round trip, and the most expired ones that it removes."""

_CLAIMED: Final = 500
"""The most members of a claim, which is one round trip: what was claimed before a failure would be lost."""


class Group:
    """A group of members, such as ``PlayerRank.group("live:42")``. Filter by it: ``ranking.filter(group="live:42")``.

    A group is kept only in Redis, and lost if Redis is emptied. Its members need not be ranked. Answers of a ranking
    filtered by a group, except for ``recommend()``, may be some seconds old. Every method raises
    :exc:`~django_zrank.IndexUnavailable` if Redis can't be reached.
    """

    def __init__(self, index: Declaration, name: str) -> None:
        self.index, self.name, self._key = index, name, quote_group(name)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self.index!r}>"

    @verb
    def add(self, *members: Any, expires: timedelta | None = None) -> Query[int]:
        """Add members, given as arguments or as one iterable, for the time ``expires`` or permanently. Return the
        number of members that were not in the group before.

        If a member is in the group already, its time is replaced by the new one. For example, a viewer's browser may
        extend it every minute.
        """
        if expires is not None and (not isinstance(expires, timedelta) or expires <= timedelta(0)):
            raise ValueError(f"expires: expected a positive timedelta, not {expires!r}")
        lifetime = inf if expires is None else expires // timedelta(microseconds=1)
        return (yield from self._change(members, lifetime))

    aadd = async_version(add)

    @verb
    def remove(self, *members: Any) -> Query[int]:
        """Remove members, given as arguments or as one iterable. Return the number of those that were in the group."""
        return (yield from self._change(members, ""))

    aremove = async_version(remove)

    @verb
    def claim(self, *members: Any) -> Query[list[Any]]:
        """Remove up to 500 members, given as arguments or as one iterable. Return the primary keys of the members that
        this call removed, in the order given. If several callers claim the same member, exactly one gets it.

        This takes one round trip for each shard that the members belong to, one after the other. If a shard can't be
        reached, the members claimed so far are returned, and those of later shards stay in the group. The error is
        logged, or raised if no member was claimed.

        A claim is never sent twice. If its reply is lost, the members of that shard may have left the group although
        no caller got them; add them again. The same may happen if ``aclaim()`` is cancelled; if it was cancelled
        between shards, the members are logged. To prevent this, use ``asyncio.shield()``.
        """
        index, claimed = self.index, set[bytes]()
        texts = dict.fromkeys(self._texts((yield from named_members(members))))
        if len(texts) > _CLAIMED:
            raise ValueError(f"members: expected at most {_CLAIMED}, not {len(texts):,}")
        # In one order for all callers: of two that claim the same members, the first to come is likely to get them all.
        for part, some in index.place(texts).items():
            try:
                key = reader_of(part).keys.group(self._key)
                call = Call(CLAIM_MEMBERS, (key,), some, 5 * len(some))
                claimed.update((yield from one(call, writes=True, once=True)))
            except IndexUnavailable:
                if not claimed:
                    raise
                logger.exception(
                    "Index %r: the reply to a claim from %r is missing, so these may have left it: %s",
                    *(index.name, self.name, ", ".join(some)),
                )
                break
            except GeneratorExit:
                if claimed:
                    logger.error(
                        "Index %r: a call of claim() from %r was cancelled, so nobody got these: %s",
                        *(index.name, self.name, ", ".join(map(bytes.decode, claimed))),
                    )
                raise
        return [index.from_bytes(member) for member in map(str.encode, texts) if member in claimed]

    aclaim = async_version(claim)

    @verb
    def count(self) -> Query[int]:
        """The number of members, ranked or not."""
        return sum((yield from reader_of(self.index).gathering(partial(count_group, group=self._key))))

    acount = async_version(count)

    @verb
    def contains(self, member: Any) -> Query[bool]:
        """Return true if ``member`` is in the group."""
        (text,) = self._texts([member])
        # Of its own shard alone: others may be away.
        reader = reader_of(self.index.holder_of(text))
        return (yield from reader.running(partial(count_group, group=self._key, members=[text]))) > 0

    acontains = async_version(contains)

    def __contains__(self, member: Any) -> bool:
        return self.contains(member)

    def __len__(self) -> int:
        """The number of members, as returned by ``count()``. In coroutines, use ``await acount()``."""
        return self.count()

    @in_batches
    def __iter__(self) -> Batches[Any]:
        """Iterate over the primary keys of the members, in no particular order, about 500 per round trip. Members that
        join or leave in the meantime may be returned or missed. In coroutines, use ``async for``."""
        unread = [(part, b"0") for part in self.index.holders]
        seen: set[bytes] = set()

        def steps() -> Query[Sequence[Any]]:
            new: list[bytes] = []
            while unread and not new:
                part, cursor = unread.pop()
                ask = partial(read_group, group=self._key, cursor=cursor)
                cursor, *members = yield from reader_of(part).running(ask)
                if cursor != b"0":
                    unread.append((part, cursor))
                new = [member for member in members if member not in seen]
                seen.update(new)
            return list(map(self.index.from_bytes, new))

        return steps

    __aiter__ = async_iterator(__iter__)

    @verb
    def clear(self) -> Query[None]:
        """Remove all members."""
        yield from reader_of(self.index).gathering(
            lambda keys: one(Call("UNLINK", (keys.group(self._key),)), writes=True)
        )

    aclear = async_version(clear)

    def _change(self, given: Sequence[Any], lifetime: float | str) -> Query[int]:
        texts = self._texts((yield from named_members(given)))
        change = partial(change_group, group=self._key, lifetime=lifetime)
        return sum((yield from reader_of(self.index).gathering(change, texts))) if texts else 0

    def _texts(self, members: Iterable[Any]) -> list[str]:
        return [self.index.to_text(member, "members") for member in members]


class Grouping:
    """The method of an index that returns a group."""

    if TYPE_CHECKING:

        @classmethod
        def instance(cls) -> Any: ...

    @classmethod
    def group(cls, name: str) -> Group:
        """Return the group ``name``, whose members the caller keeps: ``PlayerRank.group("live:42").add(player)``."""
        return Group(cls.instance(), name)


def change_group(keys: Keys, members: Sequence[str], group: str, lifetime: float | str) -> Query[int]:
    """Add members for a time in microseconds, or remove them with a time of ''. Return the number of those that were
    not in the group, or were."""
    each = list(dict.fromkeys(members))
    changed = 0
    for part in batched(each, _PART):
        call = Call(CHANGE_GROUP, (keys.group(group),), (lifetime, _PART, *part), 5 * len(part))
        changed += yield from one(call, writes=True)
    return changed


def count_group(keys: Keys, group: str, members: Sequence[str] = ()) -> Query[int]:
    """Return the number of members whose time is not over; of all, or among these."""
    return one(Call(COUNT_GROUP, (keys.group(group),), members))


def read_group(keys: Keys, group: str, cursor: bytes) -> Query[list[bytes]]:
    """Read some members from a cursor on, ``b"0"`` at first. Return the next cursor, ``b"0"`` after the last members,
    then the members, some of which an earlier answer may have had."""
    return one(Call(READ_GROUP, (keys.group(group),), (cursor, _PART)))
