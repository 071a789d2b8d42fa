"""Groups: sets of members that the caller keeps, such as the viewers of a live show."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from math import inf
from typing import Any, Final

from ..codec.facets import Facet, MemberSets
from ..declaration import Index, Member
from ..exceptions import IndexUnavailable
from ..iteration import batched
from ..queries.request import Call
from ..queries.steps import Steps, one
from ..redis import reader_of
from ..redis.keys import Keys
from ..redis.scripts import Script
from ..redis.verbs import Batches, async_iterator, async_version, in_batches, named_members, verb
from .keys import group_key, group_keys, quote_group

__all__ = ["Group", "Grouping"]

logger = logging.getLogger("django_zrank")

CHANGE_GROUP: Final = Script("change_group", __package__)
CLAIM_MEMBERS: Final = Script("claim_members", __package__)
COUNT_GROUP: Final = Script("count_group", __package__)
COUNT_JOINED: Final = Script("count_joined", __package__)
LEAVE_GROUP: Final = Script("leave_group", __package__)
READ_GROUP: Final = Script("read_group", __package__)

_PIECE: Final = 500
"""Members that are added, removed or read in one round trip, and the most expired ones that it removes."""

_CLAIMED: Final = 500
"""The most members of a claim, which is one round trip: what was claimed before a failure would be lost."""


_FILTERS: Final = {"group": MemberSets(50, quote_group)}
"""The filter by groups: ``filter(group="live:42")``."""


class Group:
    """A group of members, such as ``PlayerRank.group("live:42")``. Filter by it: ``ranking.filter(group="live:42")``.

    A group is kept only in Redis, and lost if Redis is emptied. Its members need not be ranked. Answers of a ranking
    filtered by a group, except for ``recommend()``, may be some seconds old. Every method raises
    :exc:`~django_zrank.IndexUnavailable` if Redis can't be reached.
    """

    def __init__(self, index: Grouping[Any], name: str) -> None:
        self.index, self.name, self._key = index, name, quote_group(name)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self.index!r}>"

    @verb
    def add(self, *members: Any, expires: timedelta | None = None) -> Steps[int]:
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
    def remove(self, *members: Any) -> Steps[int]:
        """Remove members, given as arguments or as one iterable. Return the number of those that were in the group."""
        return (yield from self._change(members, ""))

    aremove = async_version(remove)

    @verb
    def claim(self, *members: Any) -> Steps[list[Any]]:
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
        for holder, some in index.place(texts).items():
            try:
                keys = group_keys(reader_of(holder).keys, self._key)
                call = Call(CLAIM_MEMBERS, keys, some, 5 * len(some))
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
    def count(self) -> Steps[int]:
        """The number of members, ranked or not."""
        return sum((yield from reader_of(self.index).gathering(partial(count_group, group=self._key))))

    acount = async_version(count)

    @verb
    def counts(self, *paths: str) -> Steps[dict[Any, int]]:
        """The number of members with each value of a facet, or with each tuple of values of a composite facet, as in
        ``ranking.counts()``: with the values that they had when they joined. Members that were not ranked then aren't
        counted. Values without members are left out.

        The facet must be one of those by which ``group_counts`` counts the members of this group. Raises
        ``ValueError`` if it isn't.
        """
        facet = self.index.faceting.of(paths)
        if facet not in self._counted or len(set(paths)) < len(paths):
            named = ", ".join(map(str, paths)) or "nothing"
            raise ValueError(
                f"counts: members of the group {self.name!r} are not counted by {named}; declare the facet in "
                f"group_counts of {type(self.index).__name__}"
            )
        ask = partial(count_joined, group=self._key, facet=facet.name)
        found = Counter[bytes]()
        for counts in (yield from reader_of(self.index).gathering(ask)):
            found.update(counts)
        order = [facet.paths.index(path) for path in paths]
        values = {facet.decode(name.decode()): count for name, count in found.items()}
        return {
            one[0] if len(paths) == 1 else tuple(one[at] for at in order): count
            for one, count in values.items()
        }

    acounts = async_version(counts)

    @verb
    def contains(self, member: Any) -> Steps[bool]:
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
        unread = [(holder, b"0") for holder in self.index.holders]
        seen: set[bytes] = set()

        def steps() -> Steps[Sequence[Any]]:
            new: list[bytes] = []
            while unread and not new:
                holder, cursor = unread.pop()
                ask = partial(read_group, group=self._key, cursor=cursor)
                cursor, *members = yield from reader_of(holder).running(ask)
                if cursor != b"0":
                    unread.append((holder, cursor))
                new = [member for member in members if member not in seen]
                seen.update(new)
            return list(map(self.index.from_bytes, new))

        return steps

    __aiter__ = async_iterator(__iter__)

    @verb
    def clear(self) -> Steps[None]:
        """Remove all members."""
        yield from reader_of(self.index).gathering(
            lambda keys: one(Call("UNLINK", group_keys(keys, self._key)), writes=True)
        )

    aclear = async_version(clear)

    def _change(self, given: Sequence[Any], lifetime: float | str) -> Steps[int]:
        texts = self._texts((yield from named_members(given)))
        facets, width = [facet.name for facet in self._counted], self.index.layout.width
        change = partial(change_group, group=self._key, lifetime=lifetime, facets=facets, width=width)
        return sum((yield from reader_of(self.index).gathering(change, texts))) if texts else 0

    @cached_property
    def _counted(self) -> list[Facet]:
        """The facets by which members that join are counted. Raises ``ValueError``."""
        return self.index.counted(self.index.get_group_counts(self.name))

    def _texts(self, members: Iterable[Any]) -> list[str]:
        return [self.index.to_text(member, "members") for member in members]


class Grouping(Index[Member]):
    """The declaration of an index whose groups may count their members."""

    group_counts: Sequence[str | Sequence[str]] = ()
    """Facets by which every group counts its members, for ``group.counts("region")``: ``("region", "platform")``. They
    must be among ``facets``. A member counts with the values that it had in Redis when it joined."""

    @property
    def member_sets(self) -> Mapping[str, MemberSets]:
        return _FILTERS

    def get_group_counts(self, group: str) -> Sequence[str | Sequence[str]]:
        """Return the facets by which the group ``group`` counts its members, by default ``group_counts`` for every
        group. All processes must agree on them."""
        return self.group_counts

    def counted(self, declared: Sequence[str | Sequence[str]]) -> list[Facet]:
        """Return the facets by which groups count, given as ``group_counts`` declares them. Raises ``ValueError``."""
        if isinstance(declared, str) or not isinstance(declared, Sequence):
            raise ValueError(f'group_counts: expected a sequence such as ("region",), not {declared!r}')
        found = []
        for paths in declared:
            facet = self.faceting.of(paths if isinstance(paths, (tuple, list)) else (paths,))
            if facet is None:
                raise ValueError(f"group_counts: {paths!r} is not a facet of the index {self.name!r}")
            found.append(facet)
        return found

    @classmethod
    def group(cls, name: str) -> Group:
        """Return the group ``name``, whose members the caller keeps: ``PlayerRank.group("live:42").add(player)``."""
        return Group(cls.instance(), name)


def change_group(
    keys: Keys,
    members: Sequence[str],
    group: str,
    lifetime: float | str,
    facets: Sequence[str] = (),
    width: int = 0,
) -> Steps[int]:
    """Add members for a time in microseconds, counted by these facets, or remove them with a time of ''. Return the
    number of those that were not in the group, or were. ``width``: of tie bytes."""
    names = (*group_keys(keys, group), keys.root, keys.meta)
    how = (lifetime, _PIECE, "\0".join(facets), width, keys.build)
    each = list(dict.fromkeys(members))
    changed = 0
    for piece in batched(each, _PIECE):
        call = Call(CHANGE_GROUP, names, (*how, *piece), 5 * len(piece))
        changed += yield from one(call, writes=True)
    return changed


def count_group(keys: Keys, group: str, members: Sequence[str] = ()) -> Steps[int]:
    """Return the number of members whose time is not over; of all, or among these."""
    return one(Call(COUNT_GROUP, (group_key(keys, group),), members, len(members)))


def count_joined(keys: Keys, group: str, facet: str) -> Steps[dict[bytes, int]]:
    """Return the numbers of members of a group whose time is not over, by the names of a facet's rankings that they
    were in when they joined."""
    names, cursor, found = group_keys(keys, group), b"0", dict[bytes, int]()
    while True:
        call = Call(COUNT_JOINED, names, (f"{facet}:", cursor, _PIECE), _PIECE)
        word, *reply = yield from one(call, writes=True)  # expired members leave
        if word == b"counted":
            cursor, *counts = reply
            found |= zip(counts[::2], map(int, counts[1::2]), strict=True)
            if cursor == b"0":
                return found


def read_group(keys: Keys, group: str, cursor: bytes) -> Steps[list[bytes]]:
    """Read some members from a cursor on, ``b"0"`` at first. Return the next cursor, ``b"0"`` after the last members,
    then the members, some of which an earlier answer may have had."""
    return one(Call(READ_GROUP, (group_key(keys, group),), (cursor, _PIECE), _PIECE))
