"""Reading and repairing all that Redis holds of an index, member by member and key by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from redis import Redis

from .. import scripts
from .base import Base

__all__ = ["Standing", "Verifying"]


class Standing(NamedTuple):
    """The score, the version and the membership of a member in Redis."""

    score: float | None
    """None where it isn't ranked."""

    version: float | None
    """Of its newest write. A member with the same version as before was not written in between."""

    membership: bytes = b""

    absent: bytes = b""
    """The facet rankings of its membership in which it does not stand with that score, joined by NUL bytes."""


class Verifying(Base):
    """The scans and checks of a store."""

    def scores(self, members: Iterable[str | bytes]) -> list[float | None]:
        """The score of each member, None for one that isn't ranked. One round trip."""
        asked = list(members)
        found: list[float | None] = self._call(Redis.zmscore, self.live.root, asked) if asked else []
        return found

    def scan(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """Every member of a facet ranking, by default of the whole index, as stored: in batches of about
        ``size`` and in no order, perhaps one twice.

        Those that are there from the beginning to the end are among them, whatever comes and goes meanwhile,
        unless another generation takes their place.
        """
        return self._scan(Redis.zscan, self.live.ranking(ranking), size)

    def scan_memberships(self, size: int) -> Iterator[list[bytes]]:
        """The members that have a membership (primary keys as text), as ``scan()`` does."""
        return self._scan(Redis.hscan, self.live.part("memberships"), size)

    def scan_names(self, size: int) -> Iterator[list[bytes]]:
        """The names of the facet rankings that are registered, and then of those that there are, or traces of."""
        yield from self._scan(Redis.zscan, self.live.part("rankings"), size)
        cursor, ended, prefix = 0, False, self.live.part("").encode()
        while not ended:
            cursor, found = self._call(Redis.scan, cursor, _escape(self.live.part("")) + "*", size)
            names = (key.removeprefix(prefix) for key in found)
            # A value has no plain colon in it: what follows one behind the name is a part of the ranking.
            yield [b":".join(name.split(b":")[:2]) for name in names if b":" in name]
            ended = cursor == 0

    def scan_values(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """The distinct values that are counted or listed for a facet ranking, by default for the whole index."""
        yield from self._scan(Redis.hscan, self.live.part("counts", ranking), size)
        yield from self._scan(Redis.zscan, self.live.part("values", ranking), size)

    def _scan(self, command: Callable[..., Any], key: str, size: int) -> Iterator[list[bytes]]:
        cursor, ended = 0, False
        while not ended:
            cursor, found = self._call(command, key, cursor, None, size)
            yield list(found) if isinstance(found, dict) else [member for member, _ in found]
            ended = cursor == 0

    def read_members(self, generation: str, members: Iterable[str | bytes]) -> list[Standing] | None:
        """Return the :class:`Standing` of each of these members (primary keys as text).

        None: the server holds another generation, or is not the one that was written to.
        """
        keys, layout = self.keys, self.layout
        args = (generation, layout.width, int(layout.memberships), *members)
        reply = self._call(scripts.READ_MEMBERS, (keys.at(generation).root, keys.recent, keys.meta), args)
        if reply is None:
            return None
        stride = 4 if layout.memberships else 2
        numbers = ([None if text is None else float(text) for text in reply[i::stride]] for i in range(2))
        return list(map(Standing, *numbers, *(reply[i::stride] for i in range(2, stride))))

    def find_strays(
        self, generation: str, locations: Iterable[tuple[str, bytes]], *, repair: bool = False
    ) -> list[float | None] | None:
        """The score with which a member stands where its membership doesn't say, None where it doesn't: for each
        location, which is the name of a facet ranking ('' for the whole index) and a stored member. ``repair``:
        take them out.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys, layout = self.keys, self.layout
        args = (generation, layout.width, int(layout.dense), int(repair), *chain.from_iterable(locations))
        reply = self._call(scripts.FIND_STRAYS, (keys.at(generation).root, keys.meta), args)
        return None if reply is None else [None if score is None else float(score) for score in reply]

    def check_names(
        self, generation: str, names: Sequence[bytes], *, repair: bool = False
    ) -> list[bytes] | None:
        """Those names that are registered without a ranking, or the other way round. ``repair``: put it right.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys = self.keys
        reply = self._call(
            scripts.CHECK_NAMES, (keys.at(generation).root, keys.meta), (generation, int(repair), *names)
        )
        return None if reply is None else [name for name, wrong in zip(names, reply, strict=True) if wrong]

    def check_counts(
        self,
        generation: str,
        texts: Iterable[bytes],
        *,
        ranking: str = "",
        members: bool,
        repair: bool = False,
    ) -> list[tuple[bytes, int, bytes]] | None:
        """Those distinct values of a ranking that are counted wrongly, with how many members have them and
        how many were counted, as text. ``texts``: values, or stored ``members`` whose values are meant.
        ``repair``: count them anew.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys = self.keys
        args = (generation, self.layout.width, int(repair), ranking, int(members), *texts)
        reply = self._call(scripts.CHECK_COUNTS, (keys.at(generation).root, keys.meta), args)
        return None if reply is None else list(zip(reply[::3], reply[1::3], reply[2::3], strict=True))

    def eviction_policy(self) -> str | None:
        """Return Redis's policy when its memory is full, such as ``noeviction``; None where it doesn't say.

        INFO tells it to those who may not use CONFIG, too.
        """
        policy: str | None = self._call(Redis.info, "memory").get("maxmemory_policy")
        return policy

    # Pruning

    def builds(self) -> list[str]:
        """The generations that Redis holds, live or being built; none where it has nothing of the index."""
        found = self._call(Redis.hmget, self.keys.meta, ["generation", "building"])
        return [name.decode() for name in found if name]

    def scan_keys(self, size: int) -> Iterator[list[bytes]]:
        """Every key of the index, in batches of about ``size``, perhaps one twice."""
        pattern, cursor, ended = _escape(f"{self.keys.tag}:") + "*", 0, False
        while not ended:
            cursor, found = self._call(Redis.scan, cursor, pattern, size)
            if found:
                yield found
            ended = cursor == 0

    def unlink(self, keys: Sequence[bytes]) -> int:
        """Remove keys, their memory freed in the background. Returns how many there were."""
        removed: int = self._call(Redis.unlink, *keys)
        return removed


def _escape(text: str) -> str:
    """``text`` as a pattern that matches itself."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
