"""Reading all that Redis holds of an index, key by key; and pruning it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis import Redis

from ..cluster import node_of, primaries
from ..codec.shards import whole_of
from ..conf import get_settings
from ..members import batched
from ..queries.request import Call, Request
from ..redis import scripts
from ..redis.keys import Keys
from .base import Base

__all__ = ["Replaced", "Verifying"]

_PIECE: Final = 1000
"""Members, fields or keys that one round trip of a scan asks for: about a millisecond of the server."""

_KEYS: Final = 500
"""Keys that one UNLINK removes, which takes the server a fraction of a millisecond."""

_REMOVALS: Final = {"pending": "HDEL", "touched": "ZREM", "group": "ZREM", "seen": "ZREM"}
"""The command that removes a member from a key, by the word of its name."""

_WITHOUT_MEMBERS: Final = (":stamp", ":making", ":given-up", ":values")
"""The ends of the names of an intersection's keys in which no members are."""

_VALUES: Final = 100
"""Distinct values that one call counts: those with tie bytes take two binary searches each."""


class Replaced(Exception):
    """Another generation or server has replaced the one that was being compared."""


class Verifying(Base):
    """The reads of a verification."""

    def read(self, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
        """Return the replies to several calls in one round trip; ``atomic``: at one moment."""
        return self.send(Request(calls, atomic=atomic)) if calls else []

    def scan(self, command: str, key: str | bytes) -> Iterator[list[bytes]]:
        """Yield the members of a sorted set (ZSCAN), or the fields of a hash (HSCAN), some at a time, perhaps one
        twice. None that stays while they are read is left out."""
        cursor, ended = 0, False
        while not ended:
            cursor, found = self._call(command, (key,), (cursor, "COUNT", _PIECE))
            yield [member for member, _ in found] if command == "ZSCAN" else list(found)
            ended = cursor == 0

    def scan_keys(self, prefix: str, size: int = _PIECE) -> Iterator[list[bytes]]:
        """Yield the keys on the same server that begin with ``prefix``, about ``size`` at a time, perhaps one twice."""
        cursor, pattern, ended = 0, re.sub(r"([\\*?\[\]^])", r"\\\1", prefix) + "*", False

        def scan(client: Redis) -> Any:
            return node_of(client, self.keys.meta).scan(cursor, pattern, size)

        while not ended:
            cursor, found = self.guard(scan)
            yield found
            ended = cursor == 0

    def check_counts(
        self, generation: str, ranking: bytes, values: Sequence[bytes]
    ) -> list[tuple[bytes, int, bytes, bool]]:
        """Return for each distinct value of a ranking the number of members that have it; the number that is counted,
        as text; and true if that is right, and the value is listed or not as it should be. Raises :exc:`Replaced` if
        the server holds another generation, or isn't the one that was written to."""
        keys = (self.keys.at(generation).root, self.keys.meta)
        checked: list[tuple[bytes, int, bytes, bool]] = []
        for piece in batched(values, _VALUES):
            reply = self._call(scripts.CHECK_COUNTS, keys, (generation, self.layout.width, ranking, *piece))
            if reply == [b"superseded"]:
                raise Replaced
            checked += (
                (value, right, counted, verdict == b"right")
                for value, (right, counted, verdict) in zip(piece, reply[1:], strict=True)
            )
        return checked

    def eviction_policy(self) -> str | None:
        """Return Redis's policy when its memory is full, such as ``noeviction``; None where it doesn't say. Of a
        cluster, the first other one of a node: slots move.

        Read by INFO, which accounts without CONFIG may use, too.
        """

        def ask(client: Redis) -> list[str | None]:
            return [server.info("memory").get("maxmemory_policy") for server in primaries(client)]

        policies = self.guard(ask)
        return next((policy for policy in policies if policy != "noeviction"), "noeviction")

    # Pruning

    def builds(self) -> list[str]:
        """Return the generations that Redis holds, live or being built; none if it has nothing of the index."""
        return [name for name in self._noted("generation", "building") if name]

    def unlink_all(self, generation: str | None = None, *, dry_run: bool = False) -> int:
        """Remove every key of the index, or of a generation that is not live, a few at a time, and return their number.
        ``dry_run``: only count them."""
        prefix = f"{self.keys.tag}:" if generation is None else self.keys.at(generation).below
        pieces = filter(None, self.scan_keys(prefix, _KEYS))
        return sum(len(keys) if dry_run else self._call("UNLINK", keys) for keys in pieces)

    # Erasing one member

    def count_rankings(self, member: str) -> int:
        """Return the number of rankings that a member stands in, in all builds."""
        count = 0
        for keys in map(self.keys.at, self.builds()):
            calls = Call("ZSCORE", (keys.root,), (member,)), Call("HGET", (keys.memberships,), (member,))
            score, membership = self.read(calls)
            if score is not None or membership is not None:
                _, names = self.layout.split(membership or b"")
                count += 1 + len(names.split(b"\0") if names else ())
        return count

    def is_pending(self, member: str) -> bool:
        """Return True if a change of the member's score is pending or in flight."""
        taken, settled = self._noted("taken", "settled")
        hashes = [self.keys.pending, *([self.keys.carried(int(taken))] if taken != settled else [])]
        return any(self.read([Call("HEXISTS", (key,), (member,)) for key in hashes]))

    def forget_version(self, member: str) -> str:
        """Forget the version of a member's newest write. Return "building" if it is kept until a rebuild ends."""
        word: bytes = self._call(scripts.FORGET_VERSION, (self.keys.recent, self.keys.meta), (member,))
        return word.decode()

    def erase(self, member: str, indexes: Sequence[Keys]) -> Counter[str]:
        """Remove a member from every key but those of builds, a few keys at a time, and return the numbers of removals
        by the words of the keys' names. Intersections are removed as a whole. ``once``: idempotency keys, which are
        kept. ``indexes``: this part and others on the same server, whose keys are found by the same scan."""
        removed, owners = Counter[str](), {keys.tag: keys for keys in indexes}
        whole = Keys.of(get_settings().key_prefix, whole_of(self.name))
        for piece in self.scan_keys(whole.tag.removesuffix("}"), _KEYS):
            calls: list[tuple[str, Call]] = []
            for key in map(bytes.decode, piece):
                keys = owners.get(key[: key.find("}") + 1])
                if keys is None:
                    continue
                kind = keys.kind_of(key)
                if key == keys.seen(member) or (
                    kind == "intersection" and not key.endswith(_WITHOUT_MEMBERS)
                ):
                    calls.append((kind, Call("UNLINK", (key,))))
                elif kind in _REMOVALS:
                    calls.append((kind, Call(_REMOVALS[kind], (key,), (member,))))
                removed["once"] += kind == "once"
            replies = self.send(Request([call for _, call in calls], spread=True)) if calls else []
            for (kind, _), reply in zip(calls, replies, strict=True):
                removed[kind] += reply
        return removed
