"""Reading and repairing all that Redis holds of an index, member by member and key by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeVar

from redis import Redis

from .. import scripts
from ..cluster import node_of, primaries
from ..codec.units import Number
from ..requests.request import Request
from .base import Base
from .scans import Fields, Members

__all__ = ["Pieces", "Replaced", "Standing", "Verifying"]

_PIECE: Final = 1000
"""Members, fields or keys that one round trip of a scan asks for."""

_KEYS: Final = 500
"""Keys that one UNLINK removes, which takes the server a fraction of a millisecond."""

_AT_ONCE: Final = 8
"""The most keys that are scanned at once: Redis returns all of a small one, of up to 128 members, however few are
requested."""

_ITEMS: Final = 250
"""The most items that a script is asked about in one call."""


Found = TypeVar("Found")
Pieces = list[tuple[str, Found]]
"""Contents that one round trip of a scan has found, of each ranking by its name."""


class Standing(NamedTuple):
    """The score, the version and the membership of a member in Redis."""

    score: float | None
    """None if it isn't ranked."""

    version: float | None
    """Of its newest write. A member with the same version as before was not written in between."""

    membership: bytes = b""

    absent: bytes = b""
    """The facet rankings of its membership in which it doesn't have that score, joined by NUL bytes."""


class Replaced(Exception):
    """Another generation or server has replaced the one that was being compared."""


class Verifying(Base):
    """The scans and checks of a store. Each is of one ``generation``; checks raise :exc:`Replaced`.

    A scan finds whatever doesn't change while it runs; the fields of a hash in no order, and perhaps twice. Each of its
    pieces is a round trip that holds the server for a millisecond or two.
    """

    def scan(self, generation: str, names: Iterable[str]) -> Iterator[Pieces[list[tuple[bytes, float]]]]:
        """Yield stored members with their scores, of the rankings with these names ('' for the whole index)."""
        keys = self.keys.at(generation)
        return self._scan(Members(), ((name, keys.ranking(name)) for name in names))

    def scan_memberships(self, generation: str) -> Iterator[Pieces[dict[bytes, bytes]]]:
        """Yield members (primary keys as text) with their memberships."""
        return self._scan(Fields(), [("", self.keys.at(generation).memberships)])

    def scan_counts(self, generation: str, names: Iterable[str]) -> Iterator[Pieces[dict[bytes, bytes]]]:
        """Yield distinct values of rankings, with the number of members that are counted for each."""
        keys = self.keys.at(generation)
        return self._scan(Fields(), ((name, keys.counts(name)) for name in names))

    def scan_values(
        self, generation: str, names: Iterable[str]
    ) -> Iterator[Pieces[list[tuple[bytes, float]]]]:
        """Yield distinct values of rankings, with the scores at which they are listed."""
        keys = self.keys.at(generation)
        return self._scan(Members(), ((name, keys.values(name)) for name in names))

    def scan_registry(self, generation: str) -> Iterator[Pieces[list[tuple[bytes, float]]]]:
        """Yield the names of facet rankings that are registered, with their scores: all 0."""
        return self._scan(Members(), [("", self.keys.at(generation).rankings)])

    def scan_names(self, generation: str) -> Iterator[list[bytes]]:
        """Yield the names of the keys below the root: of facet rankings, and of those beside all rankings."""
        prefix = self.keys.at(generation).below
        return (
            [key.removeprefix(prefix.encode()) for key in keys] for keys in self._scan_keys(prefix, _PIECE)
        )

    def _scan(self, first: Fields | Members, keys: Iterable[tuple[str, str]]) -> Iterator[Pieces[Any]]:
        """Yield the contents of several keys, each with its label. Small ones share a round trip."""
        waiting = iter(keys)
        while unread := dict.fromkeys(islice(waiting, _AT_ONCE), first):
            asked = list(unread)
            while asked:
                size = _PIECE // len(asked)
                replies = self.send(Request([unread[scan].call(scan[1], size) for scan in asked], list))
                pieces = []
                for scan, reply in zip(asked, replies, strict=True):
                    found, following = unread.pop(scan).take(reply, size)
                    pieces.append((scan[0], found))
                    if following:
                        unread[scan] = following
                yield pieces
                asked = list(unread)[:1]  # a large one goes by itself

    def read_members(self, generation: str, members: Iterable[str | bytes]) -> list[Standing]:
        """Return the :class:`Standing` of each of these members (primary keys as text)."""
        keys, layout = (self.keys.at(generation).root, self.keys.recent, self.keys.meta), self.layout
        args = generation, layout.width, int(layout.memberships)
        found = self._examine(scripts.READ_MEMBERS, keys, args, [(member,) for member in members])
        return [Standing(_number(score), _number(at), *rest) for score, at, *rest in found]

    def read_pending(
        self, generation: str, scores: Sequence[tuple[bytes, Number]]
    ) -> list[tuple[Number, bool]]:
        """Return the scores that members should have whose rows have these: with the pending changes that the rows,
        read when ``flushed`` was noted, lack; and True if they had them at that moment.

        Raises :exc:`Replaced` also if the rows are too old to tell.
        """
        keys = self.keys.at(generation)
        names, args = (keys.root, keys.meta, keys.pending), (generation, self.rule, self.flushed or 0)
        found = self._examine(scripts.READ_PENDING, names, args, [(m, repr(score)) for m, score in scores])
        return [(int(float(score)), verdict == b"right") for score, verdict in found]

    def find_strays(
        self, generation: str, occurrences: Iterable[tuple[str, bytes]], *, repair: bool = False
    ) -> list[float | None]:
        """Return for each occurrence, the name of a facet ranking ('' for the whole index) and a stored member, its
        score if its membership doesn't name that ranking; None if it isn't there. ``repair``: remove it."""
        keys, layout = (self.keys.at(generation).root, self.keys.meta, self.keys.pending), self.layout
        args = generation, layout.width, int(layout.dense), int(repair)
        found = self._examine(scripts.FIND_STRAYS, keys, args, list(occurrences))
        return list(map(_number, found))

    def check_names(self, generation: str, names: Sequence[bytes], *, repair: bool = False) -> list[bytes]:
        """Return the names that are registered without a ranking, or the other way round. ``repair``: correct that."""
        keys, args = (self.keys.at(generation).root, self.keys.meta), (generation, int(repair))
        found = self._examine(scripts.CHECK_NAMES, keys, args, [(name,) for name in names])
        return [name for name, verdict in zip(names, found, strict=True) if verdict == b"wrong"]

    def check_counts(
        self, generation: str, ranking: str, values: Iterable[bytes], *, repair: bool = False
    ) -> list[tuple[bytes, int, bytes]]:
        """Return the distinct values of a ranking that are counted wrongly, each with the number of members that have
        it, and the number that was counted, as text. ``repair``: count them again."""
        keys, asked = (self.keys.at(generation).root, self.keys.meta), list(values)
        args = generation, self.layout.width, int(repair), ranking
        found = self._examine(scripts.CHECK_COUNTS, keys, args, [(value,) for value in asked])
        return [(value, *wrong) for value, wrong in zip(asked, found, strict=True) if wrong]

    def _examine(
        self, script: scripts.Script, keys: Sequence[str], args: Sequence[Any], items: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """Return a script's reply about each item. It replies to as many in one call as its budget of look-ups allows.

        Raises :exc:`Replaced` if the server holds another generation, or isn't the one that was written to.
        """
        found: list[Any] = []
        while len(found) < len(items):
            piece = items[len(found) : len(found) + _ITEMS]
            reply = self._call(script, keys, (*args, *chain.from_iterable(piece)))
            if reply == [b"superseded"]:
                raise Replaced
            found += reply[1:]
        return found

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

    def unlink_all(self, *, dry_run: bool = False) -> int:
        """Remove every key of the index, a few at a time, and return their number. ``dry_run``: only count them."""
        pieces = filter(None, self._scan_keys(f"{self.keys.tag}:", _KEYS))
        return sum(len(keys) if dry_run else self._call("UNLINK", keys) for keys in pieces)

    def _scan_keys(self, prefix: str, size: int) -> Iterator[list[bytes]]:
        """Yield the keys that begin with ``prefix``, about ``size`` at a time, perhaps one twice."""
        cursor, pattern, ended = 0, re.sub(r"([\\*?\[\]^])", r"\\\1", prefix) + "*", False

        def scan(client: Redis) -> Any:
            return node_of(client, prefix).scan(cursor, pattern, size)

        while not ended:
            cursor, found = self.guard(scan)
            yield found
            ended = cursor == 0


def _number(text: bytes | None) -> float | None:
    return None if text is None else float(text)
