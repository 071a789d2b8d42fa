"""Groups: sets of members that the caller keeps, such as the viewers of a live show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any
from urllib.parse import quote

from .declaration import Declaration
from .exceptions import IndexUnavailable
from .queries.groups import (
    CLAIMED,
    add_to_group,
    claim_from_group,
    clear_group,
    count_group,
    read_group,
    remove_from_group,
)
from .queries.query import Query
from .redis import reader_of
from .redis.steps import Steps
from .verbs import Batches, batch_twin, in_batches, named_members, twin, verb

__all__ = ["Group"]

logger = logging.getLogger("django_zrank")


class Group:
    """A group of members, such as ``PlayerRank.group("live:42")``. Filter by it: ``ranking.filter(group="live:42")``.

    A group is kept only in Redis, and lost if Redis is emptied. Its members need not be ranked. Answers of a ranking
    filtered by a group, except for ``recommend()``, may be some seconds old. Every method raises
    :exc:`~django_zrank.IndexUnavailable` if Redis can't be reached.
    """

    def __init__(self, index: Declaration, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"group: expected the name of a group, not {name!r}")
        self.index, self.name = index, name
        self._key = quote(name, safe="")

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
        texts = self._texts((yield from named_members(members)))
        return (yield from self._sum(add_to_group, lifetime, members=texts)) if texts else 0

    aadd = twin(add)

    @verb
    def remove(self, *members: Any) -> Steps[int]:
        """Remove members, given as arguments or as one iterable. Return the number of those that were in the group."""
        texts = self._texts((yield from named_members(members)))
        return (yield from self._sum(remove_from_group, members=texts)) if texts else 0

    aremove = twin(remove)

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
        if len(texts) > CLAIMED:
            raise ValueError(f"members: expected at most {CLAIMED}, not {len(texts):,}")
        # In one order for all callers: of two that claim the same members, the first to come is likely to get them all.
        for part, some in index.split(texts).items():
            try:
                claimed.update((yield from claim_from_group(reader_of(part).keys, self._key, some)))
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

    aclaim = twin(claim)

    @verb
    def count(self) -> Steps[int]:
        """The number of members, ranked or not."""
        return (yield from self._sum(count_group))

    acount = twin(count)

    @verb
    def contains(self, member: Any) -> Steps[bool]:
        """Return true if ``member`` is in the group."""
        (text,) = self._texts([member])
        # Of its own shard alone: others may be away.
        reader = reader_of(self.index.part_of(text))
        return (yield from reader.running(lambda keys: count_group(keys, self._key, [text]))) > 0

    acontains = twin(contains)

    def __contains__(self, member: Any) -> bool:
        return self.contains(member)

    def __len__(self) -> int:
        """The number of members, as returned by ``count()``. In coroutines, use ``await acount()``."""
        return self.count()

    @in_batches
    def __iter__(self) -> Batches[Any]:
        """Iterate over the primary keys of the members, in no particular order, about 500 per round trip. Members that
        join or leave in the meantime may be returned or missed. In coroutines, use ``async for``."""
        unread = [(part, b"0") for part in self.index.parts]
        seen: set[bytes] = set()

        def steps() -> Steps[Sequence[Any]]:
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

    __aiter__ = batch_twin(__iter__)

    @verb
    def clear(self) -> Steps[None]:
        """Remove all members."""
        yield from self._sum(clear_group)

    aclear = twin(clear)

    def _sum(
        self, ask: Callable[..., Query[int]], *arguments: Any, members: list[str] | None = None
    ) -> Steps[int]:
        found = yield from reader_of(self.index).gathering(
            lambda keys, *own: ask(keys, self._key, *own, *arguments), members
        )
        return sum(found)

    def _texts(self, members: Iterable[Any]) -> list[str]:
        return [self.index.to_text(member, "members") for member in members]
